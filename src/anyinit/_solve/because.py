"""Why a parameter has its scale: the factors whose product it is, read off the decisions and the finished walk."""

from __future__ import annotations

import math
from collections.abc import Iterator

from anyinit._graph.graph import Node
from anyinit._graph.ops import Contract, Lookup, Softmax
from anyinit._solve.analytic import Decision, Solver
from anyinit._solve.fans import receptive
from anyinit._solve.plan import Term

Why = tuple[tuple[Term, ...], str]
"""Factors of a standard deviation, and whose formula that is."""

SAME = 1e-9  # a factor this close to one is left out
FAN = "LeCun et al. 1998, section 4.6: variances of independent terms add"
LEVEL = "He et al. 2015, eq. 10, with E f^2 by quadrature (Poole et al. 2016, eq. 3) in place of relu's 1/2"
SHARE = "second moments of branches add on their stream, counted from the graph (Radford et al. 2019, section 2.3)"
MIRROR = "Balduzzi et al. 2017 (mirrored weights); Saxe et al. 2014 (orthogonal ones)"
DEPTH = "Schoenholz et al. 2017: chi_1 over the whole depth"
LOGITS = "Vaswani et al. 2017, section 3.2.1"
TIED = "the output layer decides a tied table: LeCun et al. 1998, section 4.6"
RATE = "Sitzmann et al. 2020, section 3.2; phases as random Fourier features have them (Rahimi & Recht 2007)"
NEUTRAL = "what multiplies by one changes nothing: Ioffe & Szegedy 2015, Ba et al. 2016"
ZERO = "a zero bias leaves the level to the weight: He et al. 2015, section 2.2"
PAIR = "a product of two factors that starts at zero changes nothing: Hu et al. 2022, section 4.1"
ROWS = "a looked-up row is not summed, so its fan is one"
GIVEN = "the caller"
BEHIND = "behind an operation without a rule: its input level rests on a local measurement"


def given(std: float, why: str = "") -> Why:
    """A standard deviation that is not the solver's."""
    return (Term("std", std, 1.0, why or "given by the caller"),), GIVEN


def of_constant(role: str) -> str:
    """Whose formula a constant start is."""
    return {"gain": NEUTRAL, "bias": ZERO, "factor": PAIR}.get(role, "")


def of_bias(d: Decision) -> Why:
    """A bias that the policy draws: phases over a period, or its share of its layer's level."""
    if d.style.phase:
        rate = math.pi / d.style.phase
        terms = (
            Term("pi", math.pi, 1.0, "phases uniform over one period, plus and minus pi at the argument"),
            Term("omega", rate, -1.0, "factor in front of the argument, read from the graph"),
            Term("3", 3.0, -0.5, "a uniform draw on [-a, a] has variance a^2 / 3"),
        )
        return terms, RATE
    q = d.std**2 / d.style.bias
    terms = (
        Term("q", q, 0.5, "second moment before the activation"),
        Term("share", d.style.bias, 0.5, "part of it that the bias carries"),
    )
    return terms, "Poole et al. 2016, eq. 3: q = sigma_w^2 E f^2 + sigma_b^2"


def of_table(solver: Solver, d: Decision) -> Why:
    """A table, positions, a token: the level of what it stands beside."""
    name = solver.graph.leaves[d.leaf].name
    if (std := solver.override(name).get("std")) is not None:
        return given(float(std), d.why)
    factor = solver.factor(name)
    own = d.std / factor if factor else d.std
    if d.node is None or own == 0:
        terms = [Term("target", own**2, 0.5, "second moment of a row")]
        return (*terms, *_gained(factor)), ROWS
    node = solver.graph.nodes[d.node]
    beside = max((solver.walk.signals[i].m2 for i in node.inputs if i in solver.uses.live), default=1.0) or 1.0
    terms = [Term("E[x^2]", beside, 0.5, "second moment of what it stands beside")]
    ratio = own / math.sqrt(beside)
    if abs(ratio - 1) > SAME:
        tokens = _fetched(solver, node)
        terms.insert(0, Term("share", ratio, 1.0, f"amplitude beside {'looked-up rows' if tokens else 'data'}"))
    return (*terms, *_gained(factor)), ROWS


def of_weight(solver: Solver, d: Decision) -> Why:
    """A contracted weight: what is wanted behind it over what one unit of weight variance makes of its input."""
    assert d.node is not None and d.region is not None
    name = solver.graph.leaves[d.leaf].name
    chosen = solver.override(name)
    if chosen.get("std") is not None:
        return (chosen["terms"], chosen["source"]) if "terms" in chosen else given(d.std, d.why)
    gained = tuple(_gained(solver.factor(name)))
    if d.role == "tied table":
        level = solver.head_levels.get(d.leaf, 1.0)
        wanted = Term("target", 1.0, 0.5, "logits at unit second moment")
        return (wanted, *_fan(solver, d), Term("E[x^2]", level, -0.5, "second moment of what the output layer reads"),
                *gained), TIED  # fmt: skip
    if d.role == "recurrent":
        return (*_fan(solver, d, "numbers of the state: unit gain from step to step"), *gained), FAN
    if "zero input" in d.flags:
        return (*_fan(solver, d, "terms each output sums; its input is zero here, so this is unit gain"), *gained), FAN
    if d.style.std is not None:
        return (*_oscillating(d), *gained), RATE
    wanted, source, rest = _wanted(solver, d)
    return (*wanted, *_fan(solver, d), *_read(solver, d, rest), *gained), source


def behind_opaque(solver: Solver, d: Decision) -> bool:
    """Whether an operation without a rule lies before a weight's input."""
    if d.node is None:
        return False
    node = solver.graph.nodes[d.node]
    hidden = solver.streams.opaque
    return any(solver.streams.ancestors[i] & hidden for i in node.inputs if i in solver.uses.live) if hidden else False


def _gained(factor: float) -> Iterator[Term]:
    if factor != 1.0:
        yield Term("gains", factor, 1.0, "the caller's own factor")


def _oscillating(d: Decision) -> Iterator[Term]:
    rate = math.pi / d.style.phase
    yield Term("omega", rate, 1.0, "bandwidth at the argument of the oscillating function, per unit coordinate ...")
    yield Term("3", 3.0, -0.5, "... as a uniform draw of half-width omega has it")
    yield Term("omega", rate, -1.0, "factor in front of the argument, divided out")


def _fan(solver: Solver, d: Decision, meaning: str = "terms each output sums") -> Iterator[Term]:
    assert d.node is not None
    node = solver.graph.nodes[d.node]
    if d.style.centre:
        yield Term("fan_in", d.fan / receptive(node), -0.5, f"{meaning}: at the centre tap alone")
    else:
        yield Term("fan_in", d.fan, -0.5, meaning)


def _fan_value(solver: Solver, d: Decision) -> float:
    return next(_fan(solver, d)).value


def _growth(solver: Solver, d: Decision) -> tuple[float, float, float]:
    """Level at the weight's output per unit of its variance, its input's level, and what that leaves unexplained."""
    assert d.node is not None
    node = solver.graph.nodes[d.node]
    growth = solver.walk.signals[node.output].m2 / d.std**2 if d.std else 0.0
    read = solver.walk.signals[node.inputs[1 - d.use.slot]].m2
    plain = _fan_value(solver, d) * read
    return growth, read, growth / plain if plain > 0 else 1.0


def _read(solver: Solver, d: Decision, rest: float) -> Iterator[Term]:
    """The level of what the weight reads, and what of it arrives."""
    assert d.node is not None
    node = solver.graph.nodes[d.node]
    _, read, _ = _growth(solver, d)
    yield Term("E[x^2]", read, -0.5, "second moment of what it reads")
    if abs(rest - 1) > SAME:
        pairs = d.style.mirrored in {"cols", "both"}
        windows = isinstance(node.op, Contract) and bool(node.op.windows)
        meaning = (
            "part of it in differences of sign pairs, times two" if pairs else "part of the taps inside the border"
        )
        if not pairs and not windows:
            meaning = "what the use makes of it: other weights on the way, a scale on the weight"
        yield Term("seen", rest, -0.5, meaning)


def _wanted(solver: Solver, d: Decision) -> tuple[list[Term], str, float]:
    """Factors of the level at the weight's own output, whose formula, and the part of the input that is seen."""
    assert d.region is not None and d.node is not None
    growth, _, rest = _growth(solver, d)
    factor = solver.factor(solver.graph.leaves[d.leaf].name)
    q = growth * d.std**2 / (factor**2 or 1.0)
    carried: list[Term] = []
    if d.style.bias > 0:
        q /= 1 - d.style.bias
        carried = [Term("1 - b", 1 - d.style.bias, 0.5, f"b = {d.style.bias:g} of the level is carried by the bias")]
    if d.target is None:
        what = "second moment at its output: unit variance at the activation, whose target cannot be reached"
        return [Term("q", q, 0.5, what), *carried], LEVEL, rest
    if d.style.level is not None and not d.style.mirrored:
        return [Term("q", q, 0.5, f"second moment at its output: {d.style.why}"), *carried], DEPTH, rest
    terms, target, shared = _target(solver, d)
    if d.style.whole and shared and abs(q / (rest * target) - 1) < 1e-6:
        q, rest = q / rest, 1.0  # sized as if its twins did not cancel
    terms += _passing(solver, d, q / target, q)
    return [*terms, *carried], _source(solver, d, shared), rest


def _target(solver: Solver, d: Decision) -> tuple[list[Term], float, bool]:
    """The level asked for: of its own, or a share of a stream's."""
    assert d.region is not None and d.target is not None
    share = solver.levels.shares.get(d.region.end)
    if share is None or not (d.style.whole or abs(share.target / d.target - 1) < 1e-9):
        return [Term("target", d.target, 0.5, _asked(solver, d))], d.target, False
    terms = [Term("stream", share.level, 0.5, "second moment of the residual stream where it starts")]
    if share.count is not None:
        coherent = f"; their means ({share.lean:.0%} of the level) add coherently" if share.lean > 1e-3 else ""
        terms.append(Term("N", share.weighed, -0.5, f"{share.count} branches share it{coherent}"))
    if abs(share.split - 1) > SAME:
        terms.append(
            Term("split", share.split, -0.5, "growth on the way to the sum: dropout, scalings, parallel parts")
        )
    return terms, share.target, True


def _asked(solver: Solver, d: Decision) -> str:
    assert d.region is not None
    if d.region.curved:
        return f"second moment asked for after {' '.join(d.region.words)}"
    if _before_softmax(solver, d):
        return "logits at unit second moment"
    if d.target is not None and abs(d.target - 1) > SAME:
        return "second moment a regression of few outputs starts at"
    return "second moment asked for at its own output"


def _before_softmax(solver: Solver, d: Decision) -> bool:
    assert d.region is not None
    after = d.region.next
    return after is not None and isinstance(solver.graph.nodes[after].op, Softmax)


def _passing(solver: Solver, d: Decision, ratio: float, q: float) -> list[Term]:
    """From the place of the target back to the weight's own output."""
    assert d.region is not None
    if d.region.curved:
        words = " ".join(d.region.words)
        what = f"sqrt(q / E f(sqrt(q) z)^2), what {words} takes away at q = {q:.4g}"
        return [Term("gain", math.sqrt(ratio), 1.0, what)]
    if abs(ratio - 1) > SAME:
        return [Term("passed", 1 / ratio, -0.5, "growth of the level between its output and the place of the target")]
    return []


def _source(solver: Solver, d: Decision, shared: bool) -> str:
    assert d.region is not None
    found = [SHARE] if shared else []
    if d.style.mirrored:
        found.append(MIRROR)
    elif d.region.curved:
        found.append(LEVEL)
    elif _before_softmax(solver, d) or _meets_another(solver, d):
        found.append(LOGITS)
    if not found or not d.region.curved:
        found.append(FAN)
    return "; ".join(dict.fromkeys(found))


def _meets_another(solver: Solver, d: Decision) -> bool:
    """Whether the output is contracted with another activation whose result a softmax reads: a query or a key."""
    assert d.region is not None
    value = d.region.end
    for _ in range(8):
        readers = solver.uses.consumers.get(value, ())
        if len(readers) != 1:
            return False
        node = solver.graph.nodes[readers[0]]
        if isinstance(node.op, Softmax):
            return True
        if isinstance(node.op, Contract) and any(i in solver.uses.origin for i in node.inputs):
            return False
        value = node.output
    return False


def _fetched(solver: Solver, node: Node) -> bool:
    for i in node.inputs:
        made = solver.uses.producer.get(solver.uses.source(i))
        if made is not None and isinstance(solver.graph.nodes[made].op, Lookup) and i in solver.uses.live:
            return True
    return False


__all__ = ["BEHIND", "behind_opaque", "given", "of_bias", "of_constant", "of_table", "of_weight"]
