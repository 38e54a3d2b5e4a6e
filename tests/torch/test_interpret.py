"""The reference interpreter against PyTorch's own operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from anyinit._graph import ops
from anyinit._graph.interpret import apply, output_shape
from anyinit._graph.ops import PoolWindow, Window
from anyinit._graph.pullback import pull_back


@dataclass(frozen=True)
class Twin:
    name: str
    op: ops.Op
    call: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...] = ((2, 3, 8, 9),)


def image(*windows: Window) -> ops.Contract:
    return ops.Contract((0, 1, 2, 6), (3, 1, 4, 7), (0, 3, 5, 8), windows)


TWINS = [
    Twin(
        "convolution",
        image(Window(2, 4, 5, 3, 2, 1, 1, 1), Window(6, 7, 8, 3, 1, 2, 2, 2)),
        lambda x, w: F.conv2d(x, w, stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
        ((2, 3, 8, 9), (4, 3, 3, 3)),
    ),
    Twin(
        "transposed convolution with reversed taps",
        ops.Contract((0, 1, 2), (1, 3, 4), (0, 3, 5), (Window(2, 4, 5, 4, 1, 1, 2, 2, 2),)),
        lambda x, w: F.conv_transpose1d(x, w.flip(2), stride=2, padding=1),
        ((2, 3, 8), (3, 5, 4)),
    ),
    Twin(
        "maximum",
        ops.Pool("max", (PoolWindow(2, 3, 2, 1, 1), PoolWindow(3, 3, 2, 1, 1))),
        lambda x: F.max_pool2d(x, 3, 2, 1),
    ),
    Twin(
        "average with padding",
        ops.Pool("avg", (PoolWindow(2, 3, 2, 1, 1), PoolWindow(3, 3, 2, 1, 1))),
        lambda x: F.avg_pool2d(x, 3, 2, 1),
    ),
    Twin(
        "average without padding",
        ops.Pool("avg", (PoolWindow(2, 3, 2, 1, 1), PoolWindow(3, 3, 2, 1, 1)), False),
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    ),
    Twin("length", ops.Pool("lp", (PoolWindow(2, 2, 2), PoolWindow(3, 3, 3))), lambda x: F.lp_pool2d(x, 2.0, (2, 3))),
    *(
        Twin(
            f"{kind} resampling",
            ops.Resize((2, 3), (5, 18), kind),
            lambda x, mode=mode: F.interpolate(x, (5, 18), mode=mode),
        )
        for kind, mode in (("nearest", "nearest"), ("linear", "bilinear"), ("cubic", "bicubic"))
    ),
    *(
        Twin(
            f"{mode} padding",
            ops.Pad((0, 0, 1, 2), (0, 0, 2, 1), 0.0, mode),
            lambda x, mode=mode: F.pad(x, (2, 1, 1, 2), mode=mode),
        )
        for mode in ("constant", "reflect", "replicate", "circular")
    ),
    Twin("layer norm", ops.Normalize((2, 3), 1e-3), lambda x: F.layer_norm(x, (8, 9), eps=1e-3)),
    Twin("root mean square norm", ops.Normalize((3,), 1e-3, False), lambda x: F.rms_norm(x, (9,), eps=1e-3)),
    Twin("batch norm", ops.Normalize((0, 2, 3), 1e-5), lambda x: F.batch_norm(x, None, None, training=True)),
    Twin("softmax", ops.Softmax(1), lambda x: x.softmax(1)),
    Twin("log-softmax", ops.Softmax(3, True), lambda x: x.log_softmax(3)),
    Twin("logsumexp", ops.Reduce("logsumexp", (1, 3), False), lambda x: x.logsumexp((1, 3))),
    Twin("norm", ops.Reduce("norm", (1,), True), lambda x: x.norm(dim=1, keepdim=True)),
    Twin("variance", ops.Reduce("var", (2, 3), False, 1), lambda x: x.var((2, 3))),
    Twin("deviation", ops.Reduce("std", (2,), True), lambda x: x.std(2, correction=0, keepdim=True)),
    Twin("product", ops.Reduce("prod", (1,), False), lambda x: x.prod(1)),
    Twin("smallest", ops.Reduce("min", (3,), False), lambda x: x.amin(3)),
    Twin("three largest", ops.Sort(3, 3, True), lambda x: x.topk(3, 3).values),
    Twin("running sum", ops.Cumulate(2), lambda x: x.cumsum(2)),
    Twin("running product", ops.Cumulate(2, "prod"), lambda x: x.cumprod(2)),
    Twin("windows", ops.Unfold(((2, 3, 2), (3, 2, 1))), lambda x: x.unfold(2, 3, 2).unfold(3, 2, 1)),
    Twin("lower triangle", ops.Triangle(False, 1), lambda x: x.tril(1)),
    Twin("copies", ops.Repeat(2, 3, False), lambda x: x.repeat_interleave(3, 2)),
    Twin("tiles", ops.Repeat(1, 2), lambda x: x.repeat(1, 2, 1, 1)),
]


@pytest.mark.parametrize("twin", TWINS, ids=lambda t: t.name)
def test_an_operation_and_its_pull_back_give_what_pytorch_gives(twin: Twin):
    rng = np.random.default_rng(0)
    xs = [rng.standard_normal(s) for s in twin.shapes]
    tensors = [torch.tensor(x, requires_grad=True) for x in xs]
    expected = twin.call(*tensors)
    y = apply(twin.op, xs, output_shape(twin.op, xs))
    assert y.shape == expected.shape
    assert y == pytest.approx(expected.detach().numpy(), rel=1e-9, abs=1e-9)
    g = rng.standard_normal(y.shape)
    expected.backward(torch.tensor(g))
    for tensor, back in zip(tensors, pull_back(twin.op, xs, y, g), strict=True):
        assert back is not None
        assert tensor.grad is not None
        assert back == pytest.approx(tensor.grad.numpy(), rel=1e-8, abs=1e-8)


def test_gathers_and_scatters_read_their_index_as_pytorch_does():
    rng = np.random.default_rng(0)
    x, index = rng.standard_normal((4, 6, 8)), rng.integers(0, 6, (4, 3, 8))
    new = rng.standard_normal((4, 3, 8))
    t, i, n = torch.tensor(x), torch.tensor(index), torch.tensor(new)
    shape = (4, 3, 8)
    assert apply(ops.Gather(1), [x, index], shape) == pytest.approx(t.gather(1, i).numpy())
    assert apply(ops.Scatter(1, "add"), [x, index, new], x.shape) == pytest.approx(t.scatter_add(1, i, n).numpy())
    rows, columns = rng.integers(0, 4, 5), rng.integers(0, 6, 5)
    picked = t[torch.tensor(rows), torch.tensor(columns)].numpy()
    assert apply(ops.Gather(0), [x, rows, columns], (5, 8)) == pytest.approx(picked)
