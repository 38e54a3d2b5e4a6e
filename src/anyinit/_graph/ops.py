"""The closed vocabulary: one frozen dataclass per operation, framework-free.

Tensor operands are the node's inputs; everything else (axes, sizes, scalar operands) is an
attribute. Dimensions are always non-negative. Importers lower everything a framework offers to
these; what cannot be lowered becomes :class:`Opaque` and is named in the report.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Op:
    """Base of the vocabulary."""


@dataclass(frozen=True, slots=True)
class Pointwise(Op):
    """Elementwise function of broadcast operands.

    ``fn`` names an entry of ``anyinit._core.pointwise.FUNCTIONS``; ``args`` are its positional
    operands, ``None`` standing for the next tensor input and a float for a scalar. ``x + 2`` is
    ``Pointwise("add", (None, 2.0))``, ``where(m, x, 0)`` is ``Pointwise("where", (None, None, 0.0))``.
    Inputs broadcast as in NumPy (right-aligned); no explicit Expand is needed.
    Comparisons and logical functions give 0.0 / 1.0.
    """

    fn: str
    args: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """One sliding spatial dimension of a contraction: labels in the operands and geometry.

    ``out[o] += a[o * stride + t * dilation - pad_low] * b[t]`` after ``spread - 1`` zeros were put
    between neighbours of ``a`` (``spread`` > 1 is a transposed convolution).
    """

    a: int
    tap: int
    out: int
    size: int
    stride: int = 1
    dilation: int = 1
    pad_low: int = 0
    pad_high: int = 0
    spread: int = 1


@dataclass(frozen=True, slots=True)
class Contract(Op):
    """Einstein summation of two operands, with sliding windows for convolutions.

    ``a``, ``b`` and ``out`` label the dimensions of both inputs and of the output. A label in both
    operands and in the output is a batch label (groups, heads, experts); in both and not in the
    output it is contracted; in one operand and the output it is free. A window's labels stand in
    ``a`` (space), ``b`` (taps) and ``out`` (space) and nowhere else. Every label in an operand
    appears in the output or is contracted.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    out: tuple[int, ...]
    windows: tuple[Window, ...] = ()


@dataclass(frozen=True, slots=True)
class Reshape(Op):
    """Row-major reshape."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Permute(Op):
    """``out.shape[i] = in.shape[order[i]]``."""

    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Expand(Op):
    """Broadcast (right-aligned, as in NumPy) to ``shape``."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Repeat(Op):
    """Each entry along ``dim`` repeated: ``tile`` = whole-axis copies, else neighbouring copies."""

    dim: int
    times: int
    tile: bool = True


@dataclass(frozen=True, slots=True)
class Slice(Op):
    """``x[start:stop:step]`` along ``dim`` (``0 <= start < stop <= size``, ``step >= 1``)."""

    dim: int
    start: int
    stop: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class Update(Op):
    """Inputs ``(base, new)``: ``base`` with ``base[start:stop:step]`` along ``dim`` replaced."""

    dim: int
    start: int
    stop: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class Concat(Op):
    """Concatenation of all inputs along an existing ``dim``."""

    dim: int


@dataclass(frozen=True, slots=True)
class Pad(Op):
    """Padding per dimension; ``mode`` is ``constant``, ``reflect``, ``replicate`` or ``circular``."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    value: float = 0.0
    mode: str = "constant"


@dataclass(frozen=True, slots=True)
class Shuffle(Op):
    """Entries permuted along ``dims`` (flip, roll, sort-free permutation): statistics unchanged."""

    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lookup(Op):
    """Inputs ``(table, ids)``: ``table[ids]``, output shape ``ids.shape + table.shape[1:]``."""


@dataclass(frozen=True, slots=True)
class Gather(Op):
    """Inputs ``(x, index)``: entries of ``x`` picked along ``dim``; the output has its own shape."""

    dim: int


@dataclass(frozen=True, slots=True)
class Scatter(Op):
    """Inputs ``(base, index, src)``: ``src`` written (``kind="set"``) or added (``"add"``) into base."""

    dim: int
    kind: str = "set"


@dataclass(frozen=True, slots=True)
class Reduce(Op):
    """``kind``: sum, mean, max, min, prod, logsumexp, any, all, argmax (integers), norm (2-norm),
    var, std (``correction`` subtracted from the count)."""

    kind: str
    dims: tuple[int, ...]
    keepdims: bool
    correction: int = 0


@dataclass(frozen=True, slots=True)
class PoolWindow:
    """One pooled dimension. ``size``/``stride`` are averages when adaptive sizes differ."""

    dim: int
    size: int
    stride: int
    pad_low: int = 0
    pad_high: int = 0
    dilation: int = 1


@dataclass(frozen=True, slots=True)
class Pool(Op):
    """``kind`` is ``max``, ``avg`` (``count_pad``: padded zeros count) or ``lp``."""

    kind: str
    windows: tuple[PoolWindow, ...]
    count_pad: bool = True


@dataclass(frozen=True, slots=True)
class Normalize(Op):
    """``(x - mean) / sqrt(var + eps)`` over ``dims`` (no affine); ``center=False`` is RMS norm."""

    dims: tuple[int, ...]
    eps: float
    center: bool = True


@dataclass(frozen=True, slots=True)
class Softmax(Op):
    """Softmax (or log-softmax) along ``dim``."""

    dim: int
    log: bool = False


@dataclass(frozen=True, slots=True)
class Sort(Op):
    """Values sorted (or the top ``k`` kept) along ``dim``, largest first when ``descending``."""

    dim: int
    k: int | None = None
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Cumulate(Op):
    """Running ``sum`` or ``prod`` along ``dim``."""

    dim: int
    kind: str = "sum"


@dataclass(frozen=True, slots=True)
class Dropout(Op):
    """Training dropout: entries zeroed with probability ``p``, the rest divided by ``1 - p``.

    ``dims`` are those along which masks are independent; ``None`` means all.
    """

    p: float
    dims: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Random(Op):
    """Fresh noise, no input: ``normal(mean, std)``, ``uniform(low, high)``, ``bernoulli(p)``,
    ``exponential(rate)``, ``integer(low, high)``."""

    kind: str
    params: tuple[float, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fill(Op):
    """A constant scalar broadcast to ``shape``, no input."""

    value: float
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Resize(Op):
    """Interpolation of ``dims`` to the output's size; ``kind`` nearest, linear or cubic."""

    dims: tuple[int, ...]
    sizes: tuple[int, ...]
    kind: str = "nearest"


@dataclass(frozen=True, slots=True)
class Unfold(Op):
    """Sliding windows made explicit: the output appends one dimension of ``size`` at the end for
    each entry ``(dim, size, step)``; dimension ``dim`` becomes the number of windows."""

    windows: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Spectral(Op):
    """Discrete Fourier transform along ``dims``: ``kind`` fft, ifft, rfft, irfft; ``norm`` is
    backward, ortho or forward. Complex values carry E|x|^2."""

    kind: str
    dims: tuple[int, ...]
    sizes: tuple[int, ...]
    norm: str = "backward"


@dataclass(frozen=True, slots=True)
class Triangle(Op):
    """``tril`` (``upper=False``) or ``triu`` of the last two dimensions, offset by ``diagonal``."""

    upper: bool
    diagonal: int


@dataclass(frozen=True, slots=True)
class Opaque(Op):
    """An operation nobody has a rule for; ``why`` says so in words for the report.

    ``call`` is the framework's own name for it; predictions behind it are assumptions.
    """

    call: str
    why: str = ""
    output: int = 0


VOCABULARY: tuple[type[Op], ...] = (
    Pointwise, Contract, Reshape, Permute, Expand, Repeat, Slice, Update, Concat, Pad, Shuffle,
    Lookup, Gather, Scatter, Reduce, Pool, Normalize, Softmax, Sort, Cumulate, Dropout, Random,
    Fill, Resize, Unfold, Spectral, Triangle, Opaque,
)  # fmt: skip
