"""Plans written by hand for tests of the report."""

from __future__ import annotations

from anyinit._solve.plan import Draw, Part, Plan, Stability, Weight


def dense(
    name: str, out: int, inputs: int, level: float = 1.0, measured: float | None = None, **changes: object
) -> Weight:
    """A fully connected weight with its predictions; the band is a factor of 1.5 either way."""
    facts: dict[str, object] = {
        "role": "weight",
        "activation": "relu",
        "path": "add -> relu",
        "fan": inputs,
        "fan_out": out,
        "draw": Draw(outs=(0,), ins=(1,), distribution="normal", std=(2 / inputs) ** 0.5),
        "predicted": level,
        "band": (level / 1.5, level * 1.5),
        "predicted_output": 2 * level,
        "output_band": (2 * level / 1.5, 2 * level * 1.5),
        "predicted_grad": 0.01,
        "measured": measured,
    }
    return Weight(name, (out, inputs), parts=(Part(**(facts | changes)),))  # type: ignore[arg-type]


def constant(name: str, size: int, value: float, role: str) -> Weight:
    """A bias or gain."""
    return Weight(name, (size,), parts=(Part(role=role, draw=Draw(distribution="constant", value=value)),))


def packed(name: str = "attn.in_proj_weight", width: int = 4) -> Weight:
    """A packed query, key and value weight whose value part is twice as wide as the others."""
    cuts = {"q": (0, width), "k": (width, 2 * width), "v": (2 * width, 4 * width)}
    parts = tuple(
        Part(
            label=label,
            role=f"{label} weight",
            fan=width,
            draw=Draw(view=(("slice", 0, *cut, 1),), std=0.1 * (i + 1)),
            predicted=float(i + 1),
            band=(i + 0.5, i + 1.5),
            predicted_output=float(i + 1),
        )
        for i, (label, cut) in enumerate(cuts.items())
    )
    return Weight(name, (4 * width, width), parts=parts)


def small() -> Plan:
    """Two weights, a bias and a gain: healthy."""
    weights = (dense("0.weight", 8, 4, measured=1.1), constant("0.bias", 8, 0.0, "bias"), dense("2.weight", 2, 8, 0.5))
    return Plan(seed=7, weights=(*weights, constant("norm.weight", 8, 1.0, "gain")))


def deep(blocks: int = 12) -> Plan:
    """A stack of equal blocks whose stream grows."""
    weights = [dense("embed.weight", 16, 4)]
    for i in range(blocks):
        weights.append(dense(f"h.{i}.fc.weight", 64, 16, 1 + 0.1 * i))
        weights.append(dense(f"h.{i}.proj.weight", 16, 64, 1 + 0.1 * i))
        weights.append(constant(f"h.{i}.fc.bias", 64, 0.0, "bias"))
    return Plan(seed=0, weights=tuple(weights))


UNHELD = Stability(
    "level", "relu^3", ("0.weight", "2.weight"), 2, 3.0, 9.0, False, "relu^3 triples any error at every layer."
)
