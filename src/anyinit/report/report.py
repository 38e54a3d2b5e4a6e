"""The object that :func:`anyinit.initialize` returns."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cached_property
from typing import Any

from anyinit._solve.plan import Certificate, Plan, Stability
from anyinit.errors import UnhealthyError
from anyinit.report import diagnosis, html, markdown, reasons, records, text
from anyinit.report.diagnosis import Finding
from anyinit.report.explanation import Explanation
from anyinit.report.records import Layer, OpaqueOp, Unscaled


class Report:
    """What was done to a model, what was predicted, what was measured, and what no initialization can mend.

    Everything is read from ``plan``, which already carries the measurements; nothing changes after construction.

    Args:
        plan: the plan that was applied.
        model: the initialized model: the caller's own where it changes in place, the new object where it cannot.
        params: the new parameter tree, for models that keep parameters apart.
    """

    def __init__(self, plan: Plan, model: Any = None, params: Any = None) -> None:
        self.plan = plan
        self.model = model
        self.params = params

    @cached_property
    def parameters(self) -> tuple[Layer, ...]:
        """One record per parameter tensor, biases and gains included, in the order of the plan."""
        return tuple(records.layer(w) for w in self.plan.weights)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """One record per weight tensor: what is contracted with, or looked up by, the model's data."""
        return tuple(r for r in self.parameters if r.is_weight)

    @property
    def seed(self) -> int:
        """The seed of every draw; passing it again gives the same bytes."""
        return self.plan.seed

    @property
    def stability(self) -> tuple[Stability, ...]:
        """What depth does to levels and gradients, one record per path without normalization."""
        return self.plan.stability

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """Numbers that say something about training, with ``certify=True``; empty without."""
        return self.plan.certificates

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences that deserve attention."""
        return self.plan.warnings

    @property
    def notes(self) -> tuple[str, ...]:
        """Facts about the recording and the draw."""
        return self.plan.notes

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions behind the predictions that do not hold for this model."""
        return self.plan.assumptions

    @cached_property
    def unscaled(self) -> tuple[Unscaled, ...]:
        """``(name, reason)`` of every parameter that is not set."""
        return tuple(Unscaled(*entry) for entry in self.plan.unscaled)

    @cached_property
    def opaque(self) -> tuple[OpaqueOp, ...]:
        """``(operation, where, why)`` of operations without a rule."""
        return tuple(OpaqueOp(*entry) for entry in self.plan.opaque)

    @cached_property
    def counts(self) -> dict[str, dict[str, int]]:
        """Tensors and scalars that were drawn, constant, kept or not set; the four add up to ``total``."""
        return records.tally(self.plan, self.parameters)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Why the model is not healthy; empty when it is."""
        return diagnosis.findings(self.plan, self.layers)

    @property
    def healthy(self) -> bool:
        """Whether :meth:`assert_healthy` passes."""
        return not self.findings

    def assert_healthy(self) -> None:
        """Raise unless every measurement is within its band and every weight is placed.

        Raises:
            UnhealthyError: listing each finding: a level outside its band, a weight that was not set, a depth that
                cannot be held, an operation without a rule, a number that is not finite.
        """
        found = self.findings
        if found:
            listed = "\n".join(f"  - {f}" for f in found)
            raise UnhealthyError(f"{len(found)} finding{'s' if len(found) > 1 else ''}:\n{listed}")

    def explain(self, name: str) -> Explanation:
        """Why a parameter, or every parameter of a module, was set as it was, and what was expected of it.

        The factors shown multiply to the standard deviation that was planned; what was measured and corrected on the
        drawn network comes on top and is named.

        Args:
            name: of a parameter (``"2.weight"``) or of a module (``"2"``, ``"blocks.3.mlp.fc2"``).

        Raises:
            ConfigError: if no parameter or module has this name; near matches are named.
        """
        return reasons.find(self.plan, self.parameters, name)

    def to_text(self, *, compact: bool = True) -> str:
        """The table as text; ``compact=False`` gives repeated blocks a row each."""
        return text.render(self, compact=compact)

    def to_markdown(self, *, compact: bool = True) -> str:
        """The table as Markdown."""
        return markdown.render(self, compact=compact)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the plan, and everything derived from it for readers without this library."""
        return {
            "plan": self.plan.to_dict(),
            "layers": [{k: v for k, v in asdict(r).items() if k != "parts"} for r in self.layers],
            "counts": self.counts,
            "findings": [asdict(f) for f in self.findings],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Report:
        """Inverse of :meth:`to_dict`, without the model."""
        return cls(Plan.from_dict(data["plan"]))

    def to_json(self, *, indent: int | None = None) -> str:
        """JSON text; floats round-trip exactly."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_json(cls, source: str) -> Report:
        """Inverse of :meth:`to_json`, without the model."""
        return cls.from_dict(json.loads(source))

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Levels and gradients, layer by layer; needs Matplotlib.

        Args:
            ax: nothing, one Matplotlib axes (levels only) or two (levels, gradients).

        Returns:
            The figure and the array of axes drawn on.
        """
        from anyinit.report import plots

        return plots.draw(self.layers, ax)

    def plot_data(self) -> dict[str, list[Any]]:
        """What :meth:`plot` shows, as columns: ``name``, ``predicted``, ``low``, ``high``, ``measured``,
        ``predicted_grad``, ``measured_grad``; missing numbers are NaN."""
        from anyinit.report import plots

        return plots.data(self.layers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self.plan == other.plan

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return html.render(self)


Plan._html = staticmethod(lambda planned: html.render(Report(planned)))
