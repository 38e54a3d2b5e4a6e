"""The NumPy meaning of every elementwise operation agrees with torch in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from anyinit._core.pointwise import FUNCTIONS

ARGUMENTS = {
    "leaky_relu": (0.2,), "prelu": (0.25,), "elu": (1.3,), "celu": (0.7,), "softplus": (2.0, 20.0),
    "hardtanh": (-0.5, 2.0), "hardshrink": (0.4,), "softshrink": (0.4,), "threshold": (0.3, -1.0),
    "clamp": (-1.0, 0.5), "heaviside": (0.5,), "lerp": (1.5, 0.3), "addcmul": (1.5, 2.0, 0.3),
    "addcdiv": (1.5, 2.0, 0.3), "where": (1.5, -2.0),
}  # fmt: skip

BINARY = [
    "add", "sub", "mul", "div", "pow", "atan2", "maximum", "minimum", "fmod", "remainder", "floor_divide", "eq",
    "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "copysign", "hypot", "logaddexp",
    "nextafter", "xlogy", "bit_and", "bit_or",
]  # fmt: skip

POINTS = np.concatenate([np.linspace(-8.0, 8.0, 161), [0.0, -0.0, 0.4, -0.4, 0.3, 1.0, -1.0, 3.0, -3.0, 6.0]])


def call(name: str, x: np.ndarray) -> np.ndarray:
    extra = (x[::-1],) if name in BINARY else ARGUMENTS.get(name, ())
    return FUNCTIONS[name](x, *extra)


TORCH_NAMES = {
    "relu6": ("nn.functional.relu6", ()), "leaky_relu": ("nn.functional.leaky_relu", (0.2,)),
    "elu": ("nn.functional.elu", (1.3,)), "selu": ("nn.functional.selu", ()), "celu": ("nn.functional.celu", (0.7,)),
    "silu": ("nn.functional.silu", ()), "gelu": ("nn.functional.gelu", ()), "mish": ("nn.functional.mish", ()),
    "softplus": ("nn.functional.softplus", (2.0, 20.0)), "hardtanh": ("nn.functional.hardtanh", (-0.5, 2.0)),
    "hard_sigmoid": ("nn.functional.hardsigmoid", ()), "hardswish": ("nn.functional.hardswish", ()),
    "softsign": ("nn.functional.softsign", ()), "tanhshrink": ("nn.functional.tanhshrink", ()),
    "hardshrink": ("nn.functional.hardshrink", (0.4,)), "softshrink": ("nn.functional.softshrink", (0.4,)),
    "threshold": ("nn.functional.threshold", (0.3, -1.0)), "log_sigmoid": ("nn.functional.logsigmoid", ()),
    "ndtr": ("special.ndtr", ()), "lgamma": ("lgamma", ()), "i0": ("i0", ()), "clamp": ("clamp", (-1.0, 0.5)),
    "where": None, "bit_and": None, "bit_or": None, "prelu": None, "gelu_tanh": None, "heaviside": None, "lerp": None,
    "addcmul": None, "addcdiv": None, "add": None, "identity": None, "imag": None, "div": None, "xlogy": ("xlogy", ()),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {k for k, v in TORCH_NAMES.items() if v is None}))
def test_the_table_agrees_with_torch_in_double_precision(name: str) -> None:
    path, extra = TORCH_NAMES.get(name) or (name, ())
    target = torch
    aliases = {"sub": "subtract", "mul": "multiply"}
    for part in aliases.get(path, path).split("."):
        target = getattr(target, part)
    x = torch.from_numpy(POINTS)
    operands = (x, x.flip(0)) if name in BINARY else (x, *extra)
    expected = target(*operands).double().numpy()
    np.testing.assert_allclose(call(name, POINTS), expected, rtol=5e-14, atol=1e-15)


def test_the_remaining_operations_agree_with_torch() -> None:
    x = torch.from_numpy(POINTS)
    y = x.flip(0)
    f = FUNCTIONS
    pairs = [
        (f["gelu_tanh"](POINTS), torch.nn.functional.gelu(x, approximate="tanh")),
        (f["where"](POINTS > 0, POINTS, 0.25), torch.where(x > 0, x, 0.25)),
        (f["lerp"](POINTS, POINTS[::-1], 0.3), torch.lerp(x, y, 0.3)),
        (f["addcmul"](POINTS, POINTS, POINTS[::-1], 0.5), torch.addcmul(x, x, y, value=0.5)),
        (f["addcdiv"](POINTS, POINTS, 3.0, 0.5), torch.addcdiv(x, x, torch.full_like(x, 3.0), value=0.5)),
        (f["heaviside"](POINTS, 0.5), torch.heaviside(x, torch.tensor(0.5, dtype=x.dtype))),
        (f["prelu"](POINTS, 0.3), torch.nn.functional.prelu(x, torch.tensor([0.3], dtype=x.dtype))),
        (f["bit_and"]([12, 1, 0], [10, 1, 1]), torch.tensor([8, 1, 0])),
        (f["bit_or"]([12, 1, 0], [10, 1, 1]), torch.tensor([14, 1, 1])),
        (f["div"](POINTS, 3.0), x / 3.0),
    ]
    for mine, theirs in pairs:
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=2e-14, atol=1e-15)
