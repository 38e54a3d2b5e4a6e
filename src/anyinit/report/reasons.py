"""Why a parameter was set as it was: from its record to an explanation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anyinit._solve.plan import Part, Plan
from anyinit.errors import ConfigError, near
from anyinit.report.explanation import Explanation, formula
from anyinit.report.records import Layer, layer
from anyinit.report.rows import number


def find(plan: Plan, parameters: Sequence[Layer], name: str) -> Explanation:
    """The explanation of a parameter by its name or one of its other names, or of all parameters of a module.

    Raises:
        ConfigError: no parameter or module has this name; near matches are named.
    """
    for record in parameters:
        if name in (record.name, *record.aliases):
            return explain(record)
    for other, reason in plan.unscaled:
        if other == name:
            return Explanation(f"{name} is not set: {reason}")
    known = [r.name for r in parameters] + [n for n, _ in plan.unscaled]
    if inside := dict.fromkeys(n for n in known if n.startswith(name + ".")):
        return Explanation("", parts=tuple(find(plan, parameters, n) for n in inside))
    raise ConfigError("No parameter has this name.", value=repr(name), remedy=near(name, known, limit=12))


def explain(record: Layer) -> Explanation:
    """A parameter, and each of its parts where it is packed of several."""
    title = f"{record.name} {record.shape} {record.dtype}: {record.role or 'parameter'}"
    known = (f"also known as {', '.join(record.aliases)}",) if record.aliases else ()
    if len(record.parts) == 1 and not record.parts[0].label:
        return _part(title, record.parts[0], known)
    parts = tuple(_part(f"{p.label or 'part'}:", p) for p in record.parts)
    return Explanation(title, lines=known, parts=parts)


def _part(title: str, part: Part, known: tuple[str, ...] = ()) -> Explanation:
    draw = part.draw
    if not part.terms or not draw.std:
        return Explanation(title, lines=(*known, *_lines(part)), source=part.source)
    return Explanation(
        title, "standard deviation", draw.std, formula(part.terms), part.terms, (*known, *_lines(part)), "", part.source
    )


def _lines(part: Part) -> Iterator[str]:
    draw = part.draw
    if draw.distribution == "constant":
        yield f"set to {number(draw.value)}"
    elif draw.distribution == "keep":
        yield "left as it is"
    else:
        corrected = f", of which {draw.factor:.4g} is a measured correction" if draw.factor != 1 else ""
        mirrored = f", mirrored ({draw.mirrored})" if draw.mirrored else ""
        yield f"drawn {draw.distribution}, standard deviation {draw.std * draw.factor:.4g}{corrected}{mirrored}"
    if part.fan:
        yield f"fan {part.fan} in, {part.fan_out} out"
    if part.path:
        yield f"feeds {part.path}"
    yield from _level("level at its target", part.predicted, part.band, part.measured)
    yield from _level("level at its output", part.predicted_output, part.output_band, part.measured_output)
    if part.planned is not None and part.planned != part.predicted:
        yield f"before the correction theory expected {number(part.planned)}"
    yield from _level("gradient", part.predicted_grad, None, part.measured_grad)
    if part.chi is not None or part.chi_1 is not None:
        yield f"slopes: chi {number(part.chi)} (level), chi_1 {number(part.chi_1)} (gradient)"
    if part.why:
        yield f"why: {part.why}"
    if part.flags:
        yield f"assumed: {', '.join(part.flags)}"


def _level(name: str, level: float | None, band: tuple[float, float] | None, seen: float | None) -> Iterator[str]:
    if level is None:
        return
    within = f" (90 % of draws {number(band[0])} to {number(band[1])})" if band else ""
    measured = f", measured {number(seen)}" if seen is not None else ""
    yield f"{name}: predicted {number(level)}{within}{measured}"


def of_plan(plan: Plan, name: str) -> Explanation:
    """The explanation of a parameter or module from the plan alone."""
    return find(plan, [layer(w) for w in plan.weights], name)


Plan._explain = staticmethod(of_plan)  # pyright: ignore[reportPrivateUsage]
