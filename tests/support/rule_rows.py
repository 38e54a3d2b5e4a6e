"""The Monte Carlo table of the statistics rules: what is drawn, and the error each row admits to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anyinit._graph import ops
from anyinit.testing import Constant, Field, Ids, Known, Spec, Weights

__all__ = ["ROWS", "Constant", "Known", "Row"]


@dataclass(frozen=True)
class Row:
    """One check. ``allow`` are the model errors passed to ``check_rule``; ``why`` says where they come from."""

    name: str
    op: ops.Op
    inputs: tuple[Spec, ...]
    allow: Mapping[str, Any] = field(default_factory=dict[str, Any])
    why: str = ""


# every kind of shared part: all axes, one sample's, one channel's, all samples', the mean
CUBE = Field((6, 5, 8), {(0, 1, 2): 1.0, (1, 2): 0.5, (0, 2): 0.3, (2,): 0.2, (0,): 0.4}, mean=0.3)
CENTRED = Field((6, 5, 8), {(0, 1, 2): 1.0, (0, 2): 0.3, (0,): 0.2})
PLAIN = Field((6, 8), {(0, 1): 1.0, (1,): 0.4}, mean=0.2)
P = ops.Pointwise

POINTWISE = [
    Row("relu of a centred field", P("relu", (None,)), (CENTRED,)),
    Row("tanh", P("tanh", (None,)), (CUBE,)),
    Row("cube", P("pow", (None, 3.0)), (Field((6, 8), {(0, 1): 1.0, (0,): 0.3}),)),
    Row("product with a gain", P("mul", (None, None)), (CUBE, Field((8,), {(0,): 0.5, (): 0.2}, mean=1.0))),
    Row("sum with a bias", P("add", (None, None)), (CUBE, Field((5, 1), {(0,): 0.5, (): 0.2}, mean=1.0))),
]
CONTRACT = [
    Row("linear layer", ops.Contract((0, 1), (2, 1), (0, 2)), (PLAIN, Weights((7, 8), 0.4))),
    Row(
        "logits of two activations",
        ops.Contract((0, 1, 2), (0, 3, 2), (0, 1, 3)),
        (Field((4, 5, 8), {(0, 1, 2): 1.0, (0, 2): 0.4}), Field((4, 6, 8), {(0, 1, 2): 1.0, (2,): 0.4, (0, 1): 0.2})),
        {"level": 0.2},
        "the level's spread counts one draw of each operand, not their product",
    ),
]
REDUCE = [
    Row("mean over one axis", ops.Reduce("mean", (1,), False), (CUBE,)),
    Row("sum over two axes", ops.Reduce("sum", (0, 2), True), (CUBE,)),
]
STRUCTURE = [
    Row("reshape that joins two axes", ops.Reshape((30, 8)), (CUBE,)),
    Row("slice of one axis", ops.Slice(1, 1, 4), (CUBE,)),
]
ROWS = [*POINTWISE, *CONTRACT, *REDUCE, *STRUCTURE]
_ = Ids
