"""The public functions: the order of the steps, no mathematics."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from anyinit import _options
from anyinit._core.profile import activation_profile, gain
from anyinit._core.registry import register_activation, registered_activations, unregister_activation
from anyinit._graph.graph import Graph
from anyinit._graph.rewrite import canonical
from anyinit._options import Options
from anyinit._solve import correct
from anyinit._solve.analytic import Solver
from anyinit._solve.apply import materialize, rematerialize
from anyinit._solve.build import build
from anyinit._solve.plan import BY_REQUEST, Plan
from anyinit._solve.propagate import Walk
from anyinit.errors import AnyInitError, BackendNotFoundError, BackendUnavailableError, ConfigError, PlanError
from anyinit.report import Report

BACKENDS = {"torch": "anyinit._frameworks.torch.runtime", "jax": "anyinit._frameworks.jax.runtime"}


@dataclass
class _Session:
    """One model opened, recorded and solved."""

    options: Options
    runtime: Any
    graph: Graph
    solver: Solver
    plan: Plan


def initialize(
    model: Any,
    input_spec: Any = None,
    mode: Any = "analytic",
    *,
    params: Any = None,
    progress: Any = None,
    **options: Any,
) -> Report:
    """Give every weight of a model a scale that keeps signals and gradients alive, and report it.

    Args:
        model: a PyTorch module (changed in place), or a model of another supported framework.
        input_spec: shape, batch (array, tensor, tuple or dict), callable returning one, or None where
            the input can be inferred. A batch's own moments are the input moments; a shape means unit
            normal input (integers: uniform ids).
        mode: ``analytic`` (scales from theory) or ``empirical`` (levels measured on the batch). A mode
            name may also come second: ``initialize(model, "empirical", batch)``.
        params: parameters of a model that keeps them apart (Flax linen, Haiku, plain functions).
        progress: called with ``(done, total, name)`` during long work.
        options: ``target`` (``auto``, ``unit``), ``distribution`` (``auto``, ``normal``,
            ``truncated_normal``, ``uniform``, ``orthogonal``), ``residual`` (``auto``, ``share``, ``none``),
            ``bias`` (``auto``, ``zero``, ``keep``), ``gains``, ``overrides``, ``only``, ``skip``,
            ``forward`` (``callable(model, batch)`` recorded in place of the plain call), ``correct``
            (``auto``, ``always``, ``never``), ``seed`` (int, ``torch.Generator``, JAX key or None),
            ``rollback``.

    Returns:
        The report; ``print(report)`` is a table, ``report.plan`` replays it. For immutable models the new
        object is ``report.model`` or ``report.params``.

    Raises:
        ConfigError: an argument is unusable; nothing was touched.
        TraceError: the model could not be run on this input; its own exception is chained.
        BackendNotFoundError: the model belongs to no supported framework.
    """
    checked, spec = _options.parse(input_spec, mode, **options)
    session = _open(model, spec, params, checked)
    plan, weights = _drawn(session, progress)
    session.runtime.write(weights)
    return _report(session, plan, model)


def initialized(model: Any, input_spec: Any = None, mode: Any = "analytic", **options: Any) -> tuple[Any, Report]:
    """As :func:`initialize`, on a copy: ``(new model or params, report)``, as ``sorted`` is to ``list.sort``."""
    import copy

    if _backend(model)[0] == "torch":
        model = copy.deepcopy(model)
    report = initialize(model, input_spec, mode, **options)
    return (report.params if report.params is not None else report.model), report


def initialize_params(
    model: Any, params: Any, input_spec: Any = None, mode: Any = "analytic", **options: Any
) -> tuple[Any, Report]:
    """For models whose parameters live apart: ``(new params, report)``."""
    report = initialize(model, input_spec, mode, params=params, **options)
    return report.params, report


def plan(model: Any, input_spec: Any = None, mode: Any = "analytic", *, params: Any = None, **options: Any) -> Plan:
    """The plan alone: predictions from the graph before any draw; the model is not run on weights.

    Args and raises: as :func:`initialize`.
    """
    checked, spec = _options.parse(input_spec, mode, **options)
    return _open(model, spec, params, checked).plan


def apply(planned: Plan, model: Any, input_spec: Any = None, *, params: Any = None) -> Report:
    """Write a plan (from :func:`plan`, ``report.plan`` or JSON) to a model with the same parameters.

    Raises:
        PlanError: a planned parameter is missing or has another shape.
    """
    runtime = _backend(model)[1].open_model(
        model, input_spec if input_spec is not None else (), **({} if params is None else {"params": params})
    )
    shapes = {name: shape for name, _, shape, _, _ in runtime.parameters()}
    for w in planned.weights:
        if shapes.get(w.name) != w.shape:
            raise PlanError(
                "The plan does not fit this model",
                value=f"{w.name}: planned {w.shape}, found {shapes.get(w.name)}",
                remedy="Plan again for this model.",
            )
    runtime.write(materialize(planned, runtime.read))
    return Report(planned, model=getattr(runtime, "result", None) or model)


Plan._apply = staticmethod(apply)  # pyright: ignore[reportPrivateUsage]


def known_backends() -> tuple[str, ...]:
    """Frameworks this version knows."""
    return tuple(BACKENDS)


def available_backends() -> tuple[str, ...]:
    """Known frameworks that are installed."""
    from importlib.util import find_spec

    return tuple(name for name in BACKENDS if find_spec(name) is not None)


def _backend(model: Any) -> tuple[str, Any]:
    for name, home in BACKENDS.items():
        if name in sys.modules:
            module = importlib.import_module(home)
            if module.recognizes(model):
                return name, module
    missing = [n for n in BACKENDS if n not in available_backends()]
    if not available_backends():
        raise BackendUnavailableError(
            "No supported framework is installed",
            value=type(model).__name__,
            remedy=f"Install one of: {', '.join(BACKENDS)}.",
        )
    hint = f" Not installed: {', '.join(missing)}." if missing else ""
    raise BackendNotFoundError(
        "This is no model of a supported framework", value=f"{type(model).__module__}.{type(model).__qualname__}",
        remedy=f"Pass a torch.nn.Module, a Flax, Equinox or Haiku model, or a function of (params, inputs).{hint}",
    )  # fmt: skip


def _open(model: Any, spec: Any, params: Any, options: Options) -> _Session:
    _, module = _backend(model)
    extra = {} if params is None else {"params": params}
    runtime = module.open_model(model, spec, forward=options.forward, **extra)
    if options.mode == "empirical" and not runtime.batch_given:
        raise ConfigError(
            "Empirical mode measures on real data and got none",
            value=spec,
            remedy="Pass a batch as input_spec, or use mode='analytic'.",
        )
    facts = runtime.parameters()
    names = [n for name, aliases, *_ in facts for n in (name, *aliases)]
    if unmatched := options.unmatched(names):
        raise ConfigError(
            "A pattern matches no parameter", value=unmatched[0], remedy=_options.near(unmatched[0], names)
        )
    graph = canonical(runtime.record())
    kept = dict(_kept(facts, options))
    walk = Walk(graph, lambda i, leaf: solver.param(i, leaf), runtime.input_arrays())
    solver = Solver(
        graph, walk, _reader(runtime), kept=kept, share=options.residual != "none", distribution=options.distribution,
        auto=options.target == "auto", mirror=options.mirror, target=options.level,
        override=lambda name: options.override(name), factor=lambda name: options.gain(name),
    )  # fmt: skip
    solver.solve()
    return _Session(options, runtime, graph, solver, build(solver, options.seed, kept, options.pairs()))


def _kept(
    facts: Iterable[tuple[str, tuple[str, ...], tuple[int, ...], str, bool]], options: Options
) -> Iterable[tuple[str, str]]:
    for name, aliases, _, _, trainable in facts:
        if not trainable:
            yield name, f"{BY_REQUEST}: requires no gradient"
        elif not options.selects(name, *aliases):
            yield name, f"{BY_REQUEST}: only= or skip="


def _reader(runtime: Any) -> Callable[[str], Any]:
    cache: dict[str, Any] = {}

    def read(name: str) -> Any:
        if name not in cache:
            cache[name] = runtime.read([name])[name]
        return cache[name]

    return read


def _drawn(session: _Session, progress: Any) -> tuple[Plan, Mapping[str, Any]]:
    """The draw, corrected or measured where that is due."""
    options, solver, runtime = session.options, session.solver, session.runtime
    weights = materialize(session.plan, runtime.read, progress=progress)
    exact = options.mode == "empirical"
    chosen = {d.leaf for d in correct.placed(solver)} if exact or options.correct == "always" else set[int]()
    if options.correct == "auto" and not exact:
        chosen = correct.needed(solver, session.plan)
    if not chosen and not runtime.batch_given:
        return session.plan, weights
    found = correct.run(solver, runtime, weights, chosen, exact=exact, progress=progress)
    plan = correct.record(session.plan, solver, found, corrected=bool(chosen))
    return plan, (rematerialize(session.plan, weights, plan, runtime.read) if chosen else weights)


def _report(session: _Session, planned: Plan, model: Any) -> Report:
    runtime = session.runtime
    return Report(
        planned, model=getattr(runtime, "model_result", None) or model, params=getattr(runtime, "params_result", None)
    )


__all__ = [
    "AnyInitError", "activation_profile", "apply", "available_backends", "gain", "initialize", "initialize_params",
    "initialized", "known_backends", "plan", "register_activation", "registered_activations", "unregister_activation",
]  # fmt: skip
