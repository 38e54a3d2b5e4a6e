"""Weights of models of Transformers, which is imported with this module, at the place of ``_init_weights``."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from transformers import PreTrainedModel

import anyinit
from anyinit.errors import BackendUnavailableError, ConfigError

__all__ = ["initializing"]


@contextmanager
def initializing(
    plan: anyinit.Plan | None = None, *, input_spec: Any = None, mode: Any = "analytic", **options: Any
) -> Generator[list[anyinit.Report]]:
    """Models that Transformers builds inside get their new weights from this library.

    Whatever ends in ``post_init`` counts: a class called with its configuration, ``AutoModel...from_config``,
    ``Trainer(model_init=...)``. Of ``from_pretrained`` only the weights that the checkpoint lacks are new; those it has
    are kept. Transformers' own rule still runs first, since it also fills buffers; the rest happens when the
    block ends without an exception, once for each outermost model. A model built on the meta device has no weights to
    set and is passed over. For the time of the block a method of ``PreTrainedModel`` is replaced, in all threads.

    Args:
        plan: a plan of such a model, written as it is; by default each model is planned here.
        input_spec, mode, options: as in :func:`anyinit.initialize`; the input is inferred from the configuration
            of text and vision models.

    Yields:
        A list; when the block has ended it holds one report for each model, in the order in which they were finished.

    Raises:
        ConfigError: a plan together with options, or as in :func:`anyinit.initialize`.
        TraceError, PlanError: as in :func:`anyinit.initialize` and :func:`anyinit.apply`; the model that was to be set
            keeps the weights of Transformers.
    """
    if plan is not None and (input_spec is not None or mode != "analytic" or options):
        raise ConfigError(
            "A plan decides everything", value=sorted(options), remedy="Pass a plan or options, not both."
        )
    stock: Any = getattr(PreTrainedModel, "initialize_weights", None)
    if stock is None:
        raise BackendUnavailableError("This version of Transformers has no initialize_weights", remedy="Upgrade it.")
    seen: list[tuple[PreTrainedModel, list[str]]] = []

    def noted(self: Any) -> None:
        new = [name for name, p in self.named_parameters() if not getattr(p, "_is_hf_initialized", False)]
        stock(self)
        seen.append((self, new))

    PreTrainedModel.initialize_weights = noted
    reports: list[anyinit.Report] = []
    try:
        yield reports
    finally:
        PreTrainedModel.initialize_weights = stock
    for model, new in _outermost(seen):
        if plan is None:
            whole = len(new) == len(list(model.parameters()))
            reports.append(anyinit.initialize(model, input_spec, mode, **({} if whole else {"only": new}), **options))
        else:
            reports.append(plan.with_weights(tuple(w for w in plan.weights if w.name in new)).apply(model))


def _outermost(seen: list[tuple[PreTrainedModel, list[str]]]) -> list[tuple[PreTrainedModel, list[str]]]:
    """Models that are no part of another one, each with what was new when it was last seen."""
    last = {id(model): (model, new) for model, new in seen}
    inner = {id(part) for model, _ in last.values() for part in model.modules() if part is not model}
    return [(model, new) for model, new in last.values() if id(model) not in inner and new]
