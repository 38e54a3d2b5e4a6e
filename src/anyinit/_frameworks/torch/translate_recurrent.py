"""Recurrent layers, unrolled: packed gates stay one contraction, steps follow one another.

Only the first :data:`STEPS` steps of a longer sequence are unrolled; the rest repeats the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from anyinit._frameworks.torch.lower import Lower, V, aten
from anyinit._frameworks.torch.translate_contract import linear
from anyinit._frameworks.torch.translate_random import dropout
from anyinit._graph import ops

STEPS = 64
State = Sequence[V]
Cell = Callable[[Lower, V, State, "Weights"], State]


@dataclass(frozen=True, slots=True)
class Weights:
    """One direction of one layer."""

    w_ih: V
    w_hh: V
    b_ih: V | None
    b_hh: V | None
    w_hr: V | None = None


def _sum(low: Lower, a: V, b: V) -> V:
    return low.pointwise("add", a, b)


def _lstm_step(low: Lower, gates_x: V, state: State, w: Weights) -> State:
    h, c = state
    gates = _sum(low, gates_x, linear(low, h, w.w_hh, w.b_hh))
    size = c.shape[-1]
    last = gates.ndim - 1
    i, f, g, o = (low.slice(gates, last, k * size, (k + 1) * size) for k in range(4))
    kept = low.pointwise("mul", low.pointwise("sigmoid", f), c)
    new = low.pointwise("mul", low.pointwise("sigmoid", i), low.pointwise("tanh", g))
    c = _sum(low, kept, new)
    h = low.pointwise("mul", low.pointwise("sigmoid", o), low.pointwise("tanh", c))
    return (h if w.w_hr is None else linear(low, h, w.w_hr)), c


def _gru_step(low: Lower, gates_x: V, state: State, w: Weights) -> State:
    (h,) = state
    gates_h = linear(low, h, w.w_hh, w.b_hh)
    size, last = h.shape[-1], gates_h.ndim - 1
    (rx, zx, nx), (rh, zh, nh) = (
        [low.slice(x, last, k * size, (k + 1) * size) for k in range(3)] for x in (gates_x, gates_h)
    )
    r = low.pointwise("sigmoid", _sum(low, rx, rh))
    z = low.pointwise("sigmoid", _sum(low, zx, zh))
    n = low.pointwise("tanh", _sum(low, nx, low.pointwise("mul", r, nh)))
    return (_sum(low, n, low.pointwise("mul", z, low.pointwise("sub", h, n))),)


def _plain_step(fn: str) -> Cell:
    def step(low: Lower, gates_x: V, state: State, w: Weights) -> State:
        return (low.pointwise(fn, _sum(low, gates_x, linear(low, state[0], w.w_hh, w.b_hh))),)

    return step


CELLS: dict[str, Cell] = {
    "lstm": _lstm_step, "gru": _gru_step, "rnn_tanh": _plain_step("tanh"), "rnn_relu": _plain_step("relu"),
}  # fmt: skip


# --- single cells -----------------------------------------------------------------------------


@aten("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def _cell(low: Lower, x: V, hx: Any, w_ih: V, w_hh: V, b_ih: V | None = None, b_hh: V | None = None) -> Any:
    state = tuple(hx) if isinstance(hx, (list, tuple)) else (hx,)
    w = Weights(w_ih, w_hh, b_ih, b_hh)
    out = CELLS[low.base.removesuffix("_cell")](low, linear(low, x, w_ih, b_ih), state, w)
    return out if len(out) > 1 else out[0]


# --- whole layers -----------------------------------------------------------------------------


@aten("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")
def _layers(low: Lower, x: V, hx: Any, params: Sequence[V], has_biases: bool, num_layers: int, dropout: float,
            train: bool, bidirectional: bool, batch_first: bool) -> Any:  # fmt: skip
    x = low.permute(x, (1, 0, 2)) if batch_first else x
    length = x.shape[0]
    sizes = [x.shape[1]] * length
    out, states = _stack(low, x, hx, params, has_biases, num_layers, dropout if train else 0.0, bidirectional, sizes)
    out = low.permute(out, (1, 0, 2)) if batch_first else out
    return (out, *states)


@aten("lstm.data", "gru.data", "rnn_tanh.data", "rnn_relu.data")
def _packed_layers(low: Lower, data: V, batch_sizes: V, hx: Any, params: Sequence[V], has_biases: bool,
                   num_layers: int, dropout: float, train: bool, bidirectional: bool) -> Any:  # fmt: skip
    if not batch_sizes.known or batch_sizes.size > STEPS:
        return NotImplemented
    sizes = [int(n) for n in batch_sizes.data.tolist()]
    out, states = _stack(low, data, hx, params, has_biases, num_layers, dropout if train else 0.0, bidirectional, sizes)
    return (out, *states)


def _stack(low: Lower, x: V, hx: Any, params: Sequence[V], has_biases: bool, num_layers: int, p: float,
           bidirectional: bool, sizes: list[int]) -> tuple[V, tuple[V, ...]]:  # fmt: skip
    """All layers and directions over ``x``: (time, batch, features), or packed (rows, features)."""
    kind = low.base
    starts = tuple(hx) if isinstance(hx, (list, tuple)) else (hx,)
    ways = 2 if bidirectional else 1
    per = len(params) // (num_layers * ways)
    finals: list[State] = []
    for layer in range(num_layers):
        outs: list[V] = []
        for way in range(ways):
            k = layer * ways + way
            w = _weights(params[k * per : (k + 1) * per], has_biases)
            start = tuple(low.select(s, 0, k) for s in starts)
            out, final = _direction(low, CELLS[kind], x, start, w, sizes, reverse=way == 1)
            outs.append(out)
            finals.append(final)
        x = low.concat(outs, x.ndim - 1)
        if layer + 1 < num_layers:
            x = dropout(low, x, p)
    states = tuple(
        low.concat([low.reshape(f[i], (1, *f[i].shape)) for f in finals], 0) for i in range(len(starts))
    )  # fmt: skip
    return x, states


def _weights(params: Sequence[V], has_biases: bool) -> Weights:
    biases = (params[2], params[3]) if has_biases else (None, None)
    extra = params[4 if has_biases else 2 :]
    return Weights(params[0], params[1], *biases, extra[0] if extra else None)


def _direction(low: Lower, cell: Cell, x: V, start: State, w: Weights, sizes: list[int], *,
               reverse: bool) -> tuple[V, State]:  # fmt: skip
    """One direction; ``sizes`` are the rows of each step (equal, or falling in a packed sequence)."""
    gates, dense = linear(low, x, w.w_ih, w.b_ih), x.ndim == 3
    offsets = [sum(sizes[:t]) for t in range(len(sizes))]
    times = list(range(len(sizes)))[:: -1 if reverse else 1]
    steps, state, done = times[:STEPS], tuple(_rows(low, s, 0, sizes[times[0]]) for s in start), []
    hidden: dict[int, V] = {}
    for t in steps:
        rows = state[0].shape[0]
        if sizes[t] < rows:  # sequences that ended
            done.append(tuple(_rows(low, s, sizes[t], rows) for s in state))
            state = tuple(_rows(low, s, 0, sizes[t]) for s in state)
        elif sizes[t] > rows:  # sequences that begin, seen from the end
            state = tuple(
                low.concat([s, _rows(low, first, rows, sizes[t])], 0) for s, first in zip(state, start, strict=True)
            )
        now = low.select(gates, 0, t) if dense else _rows(low, gates, offsets[t], offsets[t] + sizes[t])
        state = cell(low, now, state, w)
        hidden[t] = state[0]
    outs = [low.reshape(hidden[t], (1, *hidden[t].shape)) if dense else hidden[t] for t in sorted(steps)]
    out = _continued(low, low.concat(outs, 0), len(times) - len(steps), reverse) if dense else low.concat(outs, 0)
    final = tuple(low.concat([s, *(d[i] for d in reversed(done))], 0) for i, s in enumerate(state))
    return out, final


def _rows(low: Lower, x: V, start: int, stop: int) -> V:
    return low.slice(x, 0, start, stop)


def _continued(low: Lower, out: V, missing: int, reverse: bool) -> V:
    """The steps that were not unrolled repeat the last one that was."""
    if missing == 0:
        return out
    low.note(f"only the first {STEPS} steps of a recurrent layer were unrolled; later steps repeat the last one")
    shape = (out.shape[0] + missing, *out.shape[1:])
    pads = [(0,) * out.ndim, (missing, *(0,) * (out.ndim - 1))]
    before, after = pads[::-1] if reverse else pads
    return low.add(ops.Pad(before, after, 0.0, "replicate"), (out,), shape)


# --- packing ----------------------------------------------------------------------------------


@aten("_pack_padded_sequence")
def _pack(low: Lower, x: V, lengths: V, batch_first: bool) -> Any:
    """Rows by time; the row counts are read off the run, which such a batch fixes."""
    x = low.permute(x, (1, 0, *range(2, x.ndim))) if batch_first else x
    sizes = [int(n) for n in low.results[1].tolist()]
    parts = [_rows(low, low.select(x, 0, t), 0, n) for t, n in enumerate(sizes)]
    return low.concat(parts, 0), None


@aten("_pad_packed_sequence")
def _unpack(low: Lower, data: V, batch_sizes: V, batch_first: bool, padding_value: float, total_length: int) -> Any:
    if not batch_sizes.known:
        return NotImplemented
    sizes = [int(n) for n in batch_sizes.data.tolist()]
    rows, parts, at = max(sizes), [], 0
    for n in sizes:
        part = _rows(low, data, at, at + n)
        at += n
        if n < rows:
            op = ops.Pad((0,) * part.ndim, (rows - n, *(0,) * (part.ndim - 1)), float(padding_value))
            part = low.add(op, (part,), (rows, *part.shape[1:]))
        parts.append(low.reshape(part, (1, *part.shape)))
    out = low.concat(parts, 0)
    return (low.permute(out, (1, 0, *range(2, out.ndim))) if batch_first else out), None
