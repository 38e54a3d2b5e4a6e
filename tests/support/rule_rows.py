"""The Monte Carlo table of the statistics rules: what is drawn, and the error each row admits to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anyinit._graph import ops
from anyinit._graph.ops import Contract, PoolWindow, Reduce, Window
from anyinit.testing import Constant, Field, Ids, Known, Spec, Weights


@dataclass(frozen=True)
class Row:
    """One check. ``allow`` are the model errors passed to ``check_rule``; ``why`` says where they come from."""

    name: str
    op: ops.Op
    inputs: tuple[Spec, ...]
    allow: Mapping[str, Any] = field(default_factory=dict[str, Any])
    why: str = ""
    kind: str = "float"
    meaning: Any = None
    pull: Any = None


def fn(name: str, *args: float | None) -> ops.Pointwise:
    return ops.Pointwise(name, args or (None,))


def step(x: np.ndarray) -> np.ndarray:
    return (x > 0) * 1.0


# one shared part of every kind: all axes, all samples', one sample's and channel's, one channel's, one sample's
CUBE = Field((6, 5, 8), {(0, 1, 2): 1.0, (1, 2): 0.5, (0, 2): 0.3, (2,): 0.2, (0,): 0.4}, mean=0.3)
CENTRED = Field((6, 5, 8), {(0, 1, 2): 1.0, (0, 2): 0.3, (0,): 0.2})
SHIFTED = Field((6, 5, 8), {(0, 1, 2): 1.0, (0, 2): 0.3, (0,): 0.2}, mean=0.6)
BLOCK = Field((4, 6, 8), {(0, 1, 2): 1.0, (0,): 0.3, (0, 1): 0.3, (1, 2): 0.2}, mean=0.4)
PLAIN = Field((6, 8), {(0, 1): 1.0, (1,): 0.4}, mean=0.2)
# the middle dimension is (2, 3), as after a reshape that joined two axes
JOINED = Field((5, 6, 4), {(0, 1, 2, 3): 1.0, (0, 1): 0.5, (1, 3): 0.3, (2,): 0.2}, factors=((5,), (2, 3), (4,)))
MERGED = Field((6, 5, 4), {(0, 1): 1.0, (0,): 0.4, (): 0.2}, groups=(0, 0, 1))
IMAGE = Field((6, 8, 9), {(0, 1, 2): 1.0, (0,): 0.5, (2,): 0.2}, mean=0.3)
BIT = Field((6, 5, 8), {(0, 1, 2): 1.0}, through=step)
MASK = Known(np.random.default_rng(3).random((5, 8)) > 0.4)

TAILS = "marginal taken as Gaussian where it is a mixture of sums"
SORTED = "the means of the ranks are fixed, but counted as one random component"

POINTWISE = [
    *(Row(f"{f} of a centred field", fn(f), (CENTRED,)) for f in ("relu", "gelu", "silu", "abs", "sin", "square")),
    *(Row(f"{f} of a shifted field", fn(f), (SHIFTED,)) for f in ("tanh", "gelu", "elu", "softplus", "sigmoid")),
    Row("relu of a shifted field", fn("relu"), (CUBE,)),
    Row("hardswish of a shifted field", fn("hardswish"), (SHIFTED,)),
    Row("cube", fn("pow", None, 3.0), (Field((6, 8), {(0, 1): 1.0, (0,): 0.3}),)),
    Row("exponential", fn("exp"), (Field((6, 5, 8), {(0, 1, 2): 0.2, (0, 2): 0.1}),)),
    Row("function of a field with zero sums", fn("tanh"), (Field((6, 8), {(0, 1): 1.0}, centred=(1,), mean=0.5),)),
    Row("function of merged axes", fn("relu"), (MERGED,)),
    Row("function of a positive field", fn("sqrt"), (Field((6, 8), {(0, 1): 1.0, (0,): 0.3}, through="softplus"),)),
    Row("scalar operand", fn("add", None, 2.0), (CUBE,)),
    Row("product with a gain", fn("mul", None, None), (CUBE, Field((8,), {(0,): 0.5, (): 0.2}, mean=1.0))),
    Row("product of two fields", fn("mul", None, None), (SHIFTED, CENTRED)),
    Row("sum with a bias", fn("add", None, None), (CUBE, Field((5, 1), {(0,): 0.5, (): 0.2}, mean=1.0))),
    Row("difference of two fields", fn("sub", None, None), (SHIFTED, SHIFTED)),
    Row("sum over joined axes", fn("add", None, None), (JOINED, Field((6, 4), {(0, 1): 0.5}))),
    Row(
        "sum of a half-wave and a field",
        fn("add", None, None),
        (Field((6, 5, 8), {(0, 1, 2): 1.0}, through="relu"), CENTRED),
    ),
    Row("maximum of two fields", fn("maximum", None, None), (SHIFTED, CENTRED)),
    Row("quotient", fn("div", None, None), (CENTRED, Field((8,), {(0,): 0.05}, mean=2.0))),
    Row("comparison", fn("gt", None, 0.2), (SHIFTED,), {"error": 0.02}, "a jump falls between two nodes", "bool"),
    Row("selection by a known mask", fn("where", None, None, 0.0), (MASK, SHIFTED)),
    Row("selection by a random mask", fn("where", None, None, None), (BIT, SHIFTED, CENTRED)),
    Row("product added", fn("addcmul", None, None, None), (CENTRED, SHIFTED, CENTRED)),
    Row(
        "interpolation by a gate",
        fn("lerp", None, None, None),
        (CENTRED, SHIFTED, Field((6, 5, 8), {(0, 1, 2): 1.0}, through="sigmoid")),
    ),
]


def conv(*windows: Window, batch: bool = False) -> Contract:
    """Rows of samples, channels and one spatial dimension against filters of channels and taps."""
    return Contract((0, 1, 2), (1, 4) if batch else (3, 1, 4), (0, 1, 5) if batch else (0, 3, 5), windows)


SIGNALS = Field((4, 3, 8), {(0, 1, 2): 1.0, (0, 1): 0.5, (1, 2): 0.3, (2,): 0.2}, mean=0.4)
CONTRACT = [
    Row("linear layer", Contract((0, 1), (2, 1), (0, 2)), (PLAIN, Weights((7, 8), 0.4))),
    Row("linear layer on joined axes", Contract((0, 1, 2), (2, 3), (0, 1, 3)), (JOINED, Weights((4, 5), 0.4))),
    Row("joined axes contracted", Contract((0, 1, 2), (1, 3), (0, 2, 3)), (JOINED, Weights((6, 5), 0.4))),
    Row("linear layer on zero sums", Contract((0, 1), (2, 1), (0, 2)), (
        Field((6, 8), {(0, 1): 1.0, (0,): 0.2}, centred=(1,)), Field((5, 8), {(0, 1): 1.0, (0,): 0.4}, mean=0.3))),
    Row("weights of several heads", Contract((0, 1, 2), (1, 3, 2), (0, 1, 3)), (BLOCK, Weights((6, 5, 8), 0.4))),
    Row(
        "logits of two activations",
        Contract((0, 1, 2), (0, 3, 2), (0, 1, 3)),
        (Field((4, 5, 8), {(0, 1, 2): 1.0, (0, 2): 0.4}), Field((4, 6, 8), {(0, 1, 2): 1.0, (2,): 0.4, (0, 1): 0.2})),
        {"level": 0.2},
        "the level's spread counts one draw of each operand, not their product",
    ),
    Row(
        "weights of tokens with values",
        Contract((0, 1, 2), (0, 2, 3), (0, 1, 3)),
        (Field((4, 5, 6), {(0, 1, 2): 0.2, (0, 1): 0.1}, mean=0.5), Field((4, 6, 7), {(0, 1, 2): 1.0, (0, 2): 0.4})),
    ),
    Row("convolution", conv(Window(2, 4, 5, 3, 1, 1, 1, 1)), (SIGNALS, Weights((5, 3, 3), 0.5))),
    Row("strided convolution", conv(Window(2, 4, 5, 3, 2, 1, 1, 1)), (SIGNALS, Weights((5, 3, 3), 0.5))),
    Row("dilated convolution", conv(Window(2, 4, 5, 3, 1, 2, 2, 2)), (SIGNALS, Weights((5, 3, 3), 0.5))),
    Row("transposed convolution", conv(Window(2, 4, 5, 4, 1, 1, 2, 2, 2)), (SIGNALS, Weights((5, 3, 4), 0.5)),
        {"fourth": 0.1}, "entries between inputs see fewer taps: a mixture of variances"),
    Row("depthwise convolution", conv(Window(2, 4, 5, 3, 1, 1, 1, 1), batch=True), (SIGNALS, Weights((3, 3), 0.5)),
        {"level": 0.3}, "three filters of three taps: the level is far from Gaussian"),
    Row("blur with constant taps", conv(Window(2, 4, 5, 3, 2, 1, 1, 1), batch=True), (SIGNALS, Constant((3, 3), 0.5))),
    Row("taps that share a part", conv(Window(2, 4, 5, 3, 2, 1, 1, 1)), (
        SIGNALS, Field((5, 3, 3), {(0, 1, 2): 1.0, (2,): 0.5, (1, 2): 0.3}, mean=0.2))),
    Row(
        "grouped convolution",
        Contract((0, 6, 1, 2), (6, 3, 1, 4), (0, 6, 3, 5), (Window(2, 4, 5, 3, 2, 1, 1, 1),)),
        (Field((4, 2, 3, 8), {(0, 1, 2, 3): 1.0, (0, 1, 2): 0.5, (1, 2): 0.5}, mean=0.4), Weights((2, 4, 3, 3), 0.5)),
    ),
    Row(
        "convolution over two dimensions",
        Contract((0, 1, 2, 6), (3, 1, 4, 7), (0, 3, 5, 8), (
            Window(2, 4, 5, 3, 1, 1, 1, 1), Window(6, 7, 8, 3, 2, 1, 1, 1))),
        (Field((3, 3, 6, 7), {(0, 1, 2, 3): 1.0, (0, 1, 2): 0.5, (1,): 0.2}, mean=0.4), Weights((4, 3, 3, 3), 0.3)),
    ),
]  # fmt: skip

FEATURES = Field((4, 6, 64), {(0, 1, 2): 1.0, (1, 2): 0.2}, mean=0.1)
FEW = "sixteen entries: the reduction is not close to its mean"
REDUCE = [
    Row("mean over one axis", Reduce("mean", (1,), False), (CUBE,)),
    Row("mean over half of a merged group", Reduce("mean", (1,), True), (MERGED,)),
    Row("mean over joined axes", Reduce("mean", (1,), False), (JOINED,)),
    Row("sum over two axes", Reduce("sum", (0, 2), True), (CUBE,)),
    Row("mean of squares", Reduce("mean", (2,), False), (Field((4, 6, 32), {(0, 1, 2): 1.0}, through="square"),)),
    Row("maximum over one axis", Reduce("max", (1,), False), (CUBE,)),
    Row("minimum over one axis", Reduce("min", (1,), True), (CUBE,)),
    Row("maximum over two axes", Reduce("max", (1, 2), True), (CUBE,)),
    Row("product of numbers about one", Reduce("prod", (1,), False), (Field((6, 3), {(0, 1): 0.05}, mean=1.0),)),
    Row("sum of exponentials, logarithm", Reduce("logsumexp", (2,), False), (FEATURES,)),
    Row("norm of many", Reduce("norm", (2,), False), (FEATURES,)),
    Row("norm of few", Reduce("norm", (2,), True), (BLOCK,), {"error": 0.02, "back": 0.3}, FEW),
    Row("variance of many", Reduce("var", (2,), False, 1), (FEATURES,)),
    Row("variance of few", Reduce("var", (2,), True), (BLOCK,), {"fourth": 0.2}, FEW),
    Row("deviation", Reduce("std", (2,), False, 1), (FEATURES,)),
    Row("place of the maximum", Reduce("argmax", (1,), False), (Field((6, 8), {(0, 1): 1.0}),), kind="int"),
    Row(
        "any",
        Reduce("any", (1,), False),
        (Field((6, 4), {(0, 1): 1.0}, mean=-1.0, through=step),),
        {"error": 0.02, "noise": 1.1},
        "a jump falls between two nodes, and truth has no level to scale",
        kind="bool",
    ),
]
POOL = [
    Row("average of windows side by side", ops.Pool("avg", (PoolWindow(1, 2, 2),)), (IMAGE,)),
    Row("average of overlapping windows with padding", ops.Pool(
        "avg", (PoolWindow(1, 3, 1, 1, 1), PoolWindow(2, 3, 2, 1, 1))), (IMAGE,)),
    Row("average that leaves padding out", ops.Pool(
        "avg", (PoolWindow(1, 3, 1, 1, 1), PoolWindow(2, 3, 2, 1, 1)), False), (IMAGE,)),
    Row("average of merged axes", ops.Pool("avg", (PoolWindow(0, 2, 2), PoolWindow(1, 2, 2))), (MERGED,)),
    Row("maximum of windows side by side", ops.Pool("max", (PoolWindow(1, 2, 2),)), (IMAGE,)),
    Row("maximum of overlapping windows with padding", ops.Pool(
        "max", (PoolWindow(1, 3, 2, 1, 1), PoolWindow(2, 3, 2, 1, 1))), (
            Field((6, 8, 9), {(0, 1, 2): 1.0, (0,): 0.5, (0, 1): 0.2}),)),
    Row("length of windows", ops.Pool("lp", (PoolWindow(1, 2, 2), PoolWindow(2, 2, 2))), (
        Field((6, 8, 8), {(0, 1, 2): 1.0, (0,): 0.5, (0, 1): 0.2}),), {"back": 0.05, "error": 0.02},
        "four entries to a window: the length is not close to its mean"),
    Row("running sum", ops.Cumulate(1), (CUBE,), {"fourth": 0.25}, "variance grows along the axis: a mixture"),
    Row("running product", ops.Cumulate(1, "prod"), (Field((6, 4), {(0, 1): 0.1}, mean=1.0),), {"fourth": 0.3}, TAILS),
]  # fmt: skip

WIDE = Field((4, 5, 64), {(0, 1, 2): 1.0, (1, 2): 0.5, (0, 2): 0.3, (2,): 0.2, (0,): 0.4}, mean=0.3)
FINITE = "sixty-four entries share one norm, which bounds their tails"
NORMALIZE = [
    Row("layer norm", ops.Normalize((2,), 1e-5), (WIDE,), {"fourth": 0.05}, FINITE),
    Row("root mean square norm", ops.Normalize((2,), 1e-5, False), (
        Field((4, 5, 64), {(0, 1, 2): 1.0, (1, 2): 0.5, (0, 2): 0.3, (2,): 0.2}),), {"fourth": 0.05}, FINITE),
    Row("root mean square norm of rows with offsets", ops.Normalize((2,), 1e-5, False), (WIDE,),
        {"error": 0.05, "back": 0.08, "fourth": 0.1}, "a row's offset makes its norm random however long it is"),
    Row("batch norm", ops.Normalize((0, 2), 1e-5), (
        Field((8, 6, 16), {(0, 1, 2): 1.0, (1, 2): 0.5, (0, 1): 0.3, (1,): 0.4}, mean=0.3),),
        {"fourth": 0.05, "error": 0.002}, "eight samples share a part, so that few are independent"),
    Row("norm with a large epsilon", ops.Normalize((2,), 0.5), (Field((4, 5, 64), {(0, 1, 2): 1.0}),),
        {"error": 0.01, "fourth": 0.06, "back": 0.03}, "mean of a ratio taken as the ratio of means"),
    Row("layer norm of few entries", ops.Normalize((2,), 1e-5), (CUBE,),
        {"error": 0.05, "fourth": 0.4, "back": 0.05}, "eight entries: corrections of order 1/n are left out"),
    Row("batch norm of two entries", ops.Normalize((0,), 1e-3), (Field((2, 64), {(0, 1): 1.0}),),
        {"error": 0.05, "back": 0.1, "fourth": 2.5}, "two entries become plus and minus one, taken as Gaussian"),
    Row("norm of half-waves", ops.Normalize((2,), 1e-5), (Field((4, 5, 64), {(0, 1, 2): 1.0}, through="relu"),),
        {"fourth": 0.15, "error": 0.001, "back": 0.06}, "the variance of half-waves fluctuates more than a Gaussian's"),
]  # fmt: skip
LOGITS = Field((6, 5, 16), {(0, 1, 2): 1.0, (1, 2): 0.5, (0, 2): 0.3, (2,): 0.2, (0,): 0.4}, mean=0.3)
SOFTMAX = [
    Row("softmax of few", ops.Softmax(2), (CUBE,)),
    Row("softmax", ops.Softmax(2), (LOGITS,)),
    Row("softmax of many small logits", ops.Softmax(2), (
        Field((4, 32, 32), {(0, 1, 2): 0.5, (0, 2): 0.2, (1, 2): 0.1, (0, 1): 0.3}),)),
    Row("sharp softmax", ops.Softmax(2), (Field((4, 8, 32), {(0, 1, 2): 9.0, (0, 2): 3.0}),), {"back": 0.02},
        "agreement of two rows interpolated between none and full correlation"),
    Row("softmax of a constant", ops.Softmax(1), (Constant((4, 8), 0.3),)),
    Row("log-softmax", ops.Softmax(2, True), (Field((4, 8, 32), {(0, 1, 2): 1.0, (0, 2): 0.3, (0, 1): 0.3}),),
        {"fourth": 0.03}, "the logarithm's skewness is left out"),
]  # fmt: skip
STRUCTURE = [
    Row("reshape that joins two axes", ops.Reshape((30, 8)), (CUBE,)),
    Row("reshape that splits an axis", ops.Reshape((6, 5, 2, 4)), (CUBE,)),
    Row("reshape across factors", ops.Reshape((6, 20, 2)), (CUBE,)),
    Row("reshape that fits no factor", ops.Reshape((16, 15)), (CUBE,), {"error": 0.0, "level": 0.15},
        "axes that cannot be told apart any more share one average"),
    Row("permutation", ops.Permute((2, 0, 1)), (CUBE,)),
    Row("permutation of joined axes", ops.Permute((1, 0, 2)), (JOINED,)),
    Row("broadcast", ops.Expand((3, 4, 6, 8)), (Field((4, 1, 8), {(0, 2): 1.0, (0,): 0.5}),)),
    Row("tiles", ops.Repeat(1, 3), (BLOCK,)),
    Row("neighbouring copies", ops.Repeat(2, 2, False), (BLOCK,)),
    Row("copies of joined axes", ops.Repeat(1, 2), (JOINED,)),
    Row("slice of one axis", ops.Slice(1, 1, 4), (CUBE,)),
    Row("slice with a step", ops.Slice(2, 1, 8, 3), (CUBE,)),
    Row("slice of whole blocks of joined axes", ops.Slice(1, 3, 6), (JOINED,)),
    Row("slice inside a block of joined axes", ops.Slice(1, 1, 3), (JOINED,)),
    Row("slice across blocks of joined axes", ops.Slice(1, 1, 5), (JOINED,), {"error": 0.06, "back": 0.06},
        "a cut across blocks forgets which entries share one"),
    Row("shuffle", ops.Shuffle((1, 2)), (BLOCK,)),
    Row("concatenation of two fields", ops.Concat(1), (CUBE, Field((6, 3, 8), {(0, 1, 2): 0.6, (0,): 0.3}, mean=-0.2))),
    Row("concatenation with a constant", ops.Concat(2), (CUBE, Constant((6, 5, 3), 0.7))),
    Row("concatenation of three", ops.Concat(0), (BLOCK, BLOCK, Constant((2, 6, 8), 0.0))),
    Row("stretch replaced", ops.Update(1, 1, 3), (CUBE, Field((6, 2, 8), {(0, 1, 2): 0.6, (0,): 0.3}, mean=-0.2))),
    Row("every other entry replaced", ops.Update(1, 0, 5, 2), (CUBE, Field((6, 3, 8), {(0, 1, 2): 0.6}, mean=-0.2))),
    Row("zero padding of two dimensions", ops.Pad((0, 1, 2), (0, 2, 1)), (CUBE,)),
    Row("padding with a value", ops.Pad((0, 1, 0), (0, 2, 0), 1.5), (CUBE,)),
    *(Row(f"{m} padding", ops.Pad((0, 1, 2), (0, 2, 1), 0.0, m), (CUBE,))
      for m in ("reflect", "replicate", "circular")),
    Row("negative padding", ops.Pad((0, -1, 0), (0, -1, 0)), (CUBE,)),
]  # fmt: skip
TABLE = Field((11, 8), {(0, 1): 1.0, (0,): 0.3, (1,): 0.2}, mean=0.2)
NEW = Field((4, 2, 8), {(0, 1, 2): 0.5, (0,): 0.3}, mean=-0.3)
PICKS = [
    Row("lookup of unknown rows", ops.Lookup(), (Weights((11, 8)), Ids((6, 5), 11))),
    Row("lookup in a table with shared parts", ops.Lookup(), (TABLE, Ids((6, 5), 11))),
    Row("lookup of known rows", ops.Lookup(), (TABLE, Known(np.random.default_rng(0).integers(0, 11, (6, 5))))),
    Row(
        "lookup of known rows in one row of ids",
        ops.Lookup(),
        (TABLE, Known(np.random.default_rng(0).integers(0, 11, 30))),
    ),
    Row("lookup of positions", ops.Lookup(), (Weights((5, 8)), Known(np.broadcast_to(np.arange(5), (6, 5))))),
    Row("gather along a dimension", ops.Gather(1), (BLOCK, Ids((4, 3, 8), 6))),
    Row("gather of as many", ops.Gather(1), (BLOCK, Ids((4, 6, 8), 6))),
    Row("gather of rows", ops.Gather(1), (BLOCK, Ids((5,), 6))),
    Row("gather by two indices", ops.Gather(0), (BLOCK, Ids((5,), 4), Ids((5,), 6))),
    Row("scatter along a dimension", ops.Scatter(1), (BLOCK, Ids((4, 2, 8), 6), NEW)),
    Row("scatter that adds along a dimension", ops.Scatter(1, "add"), (BLOCK, Ids((4, 2, 8), 6), NEW)),
    Row("scatter that adds rows", ops.Scatter(0, "add"), (
        Field((6, 8), {(0, 1): 1.0}), Ids((10,), 6), Field((10, 8), {(0, 1): 0.5, (0,): 0.3}, mean=-0.3)),
        {"fourth": 0.4}, "how many rows fall on one is random: a mixture of variances"),
]  # fmt: skip
TRANSFORM = [
    *(Row(f"{k} enlargement", ops.Resize((2,), (16,), k), (CUBE,)) for k in ("nearest", "linear", "cubic")),
    Row("enlargement of two dimensions", ops.Resize((1, 2), (10, 16)), (CUBE,)),
    Row("linear reduction of two dimensions", ops.Resize((1, 2), (3, 5), "linear"), (CUBE,)),
    Row("Fourier transform", ops.Spectral("fft", (2,), (8,)), (BLOCK,), {"fourth": 0.6},
        "the constant frequency stands out; entries are one mixture", "complex"),
    Row("half spectrum of two dimensions", ops.Spectral("rfft", (1, 2), (6, 8), "ortho"), (BLOCK,),
        {"fourth": 0.8, "level": 0.15}, "the constant frequency stands out; entries are one mixture", "complex"),
    Row("windows made explicit", ops.Unfold(((2, 3, 1),)), (BLOCK,)),
    Row("windows of two dimensions", ops.Unfold(((1, 2, 2), (2, 3, 2))), (BLOCK,)),
    Row("lower triangle", ops.Triangle(False, 0), (BLOCK,)),
    Row("upper triangle with an offset", ops.Triangle(True, 1), (BLOCK,)),
    Row("sorted", ops.Sort(1), (CUBE,), {"error": 0.04, "level": 0.4}, SORTED),
    Row("sorted downwards", ops.Sort(1, None, True), (Field((6, 8), {(0, 1): 1.0}),), {"level": 0.4}, SORTED),
    Row("three largest", ops.Sort(1, 3, True), (Field((6, 8), {(0, 1): 1.0, (0,): 0.5}),), {"level": 0.2}, SORTED),
    Row("three smallest", ops.Sort(2, 3, False), (CUBE,), {"level": 0.2}, SORTED),
]  # fmt: skip
CHANCE = [
    Row("dropout", ops.Dropout(0.3), (BLOCK,)),
    Row("dropout of whole channels", ops.Dropout(0.3, (0, 1)), (BLOCK,)),
    Row("dropout of everything", ops.Dropout(1.0), (BLOCK,)),
    Row("normal noise", ops.Random("normal", (0.5, 2.0), (5, 6)), ()),
    Row("uniform noise", ops.Random("uniform", (-1.0, 2.0), (5, 6)), ()),
    Row("coin flips", ops.Random("bernoulli", (0.3,), (5, 6)), ()),
    Row("exponential noise", ops.Random("exponential", (2.0,), (5, 6)), ()),
    Row("random integers", ops.Random("integer", (0, 7), (5, 6)), (), kind="int"),
    Row("constant", ops.Fill(3.0, (4, 5)), ()),
    Row(
        "unknown operation that keeps the level",
        ops.Opaque("mystery"),
        (Field((6, 8), {(0, 1): 1.0}),),
        meaning=lambda op, xs, rng: xs[0],
        pull=lambda op, xs, y, g: (g,),
        allow={"back": 0.35},
        why="nothing is known of pairs of gradients behind an unknown operation",
    ),
]
ROWS = [*POINTWISE, *CONTRACT, *REDUCE, *POOL, *NORMALIZE, *SOFTMAX, *STRUCTURE, *PICKS, *TRANSFORM, *CHANCE]
