"""The public functions: the order of the steps, no mathematics."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from anyinit import _options
from anyinit._core.profile import Profile, activation_profile, gain
from anyinit._core.registry import register_activation, registered_activations, unregister_activation
from anyinit._frameworks.copies import copied
from anyinit._graph.graph import Graph
from anyinit._graph.rewrite import canonical
from anyinit._health.measure import Optimizer, measure
from anyinit._health.view import Diagnosis
from anyinit._options import Options
from anyinit._solve import certify, correct, empirical, simulate, study
from anyinit._solve.analytic import Solver
from anyinit._solve.apply import materialize, rematerialize
from anyinit._solve.batches import Batches
from anyinit._solve.build import build
from anyinit._solve.given import biases, given, reader
from anyinit._solve.plan import BY_DESIGN, BY_REQUEST, Plan
from anyinit._solve.propagate import Walk
from anyinit._solve.schemes import Schemes
from anyinit.errors import (
    AnyInitError,
    BackendNotFoundError,
    BackendUnavailableError,
    ConfigError,
    PlanError,
)
from anyinit.report import Report
from anyinit.report.activation import draw
from anyinit.report.propagation import Propagation

BACKENDS = {
    "keras": "anyinit._frameworks.keras.runtime",
    "torch": "anyinit._frameworks.torch.runtime",
    "jax": "anyinit._frameworks.jax.runtime",
    "tensorflow": "anyinit._frameworks.tensorflow.runtime",
}
"""Where each framework lives; the first that recognizes a model opens it, Keras before what it runs on."""


@dataclass
class _Session:
    """One model opened, recorded and solved."""

    options: Options
    runtime: Any
    graph: Graph
    solver: Solver
    plan: Plan
    stock: Mapping[str, Any]  # values the framework's own code drew, where the scheme asks for them


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
        input_spec: shape, batch (array, tensor, tuple or dict), a list, iterator or loader of batches (which
            empirical mode goes through; else the first), callable returning a batch, or None where
            the input can be inferred. A batch's own moments are the input moments; a shape means unit
            normal input (integers: uniform ids).
        mode: ``analytic`` (scales from theory) or ``empirical`` (levels measured on the batch). A mode
            name may also come second: ``initialize(model, "empirical", batch)``.
        params: parameters of a model that keeps them apart (Flax linen, Haiku, plain functions).
        progress: called with ``(done, total, name)`` during long work.
        options: ``target`` (``auto``, ``unit``, ``critical`` or a number), ``distribution`` (``auto``, ``normal``,
            ``truncated_normal``, ``uniform``, ``orthogonal``), ``residual`` (``auto``, ``share``, ``none``),
            ``scheme`` (a textbook scheme by name, such as ``he_normal``), ``bias`` (``auto``, ``zero``, ``keep``, or
            a number for all of them), ``gains``, ``overrides``, ``only``, ``skip``,
            ``forward`` (``callable(model, batch)`` recorded in place of the plain call), ``correct``
            (``auto``, ``always``, ``never``), ``certify`` (measure what bears on training),
            ``seed`` (int, ``torch.Generator``, JAX key or None),
            ``rollback``.

    Returns:
        The report; ``print(report)`` is a table, ``report.plan`` replays it. For immutable models the new
        object is ``report.model`` or ``report.params``.

    Raises:
        ConfigError: an argument is unusable; nothing was touched.
        TraceError: the model could not be run on this input; its own exception is chained.
        BackendNotFoundError: the model belongs to no supported framework.
    """
    checked, spec = _parsed(input_spec, mode, options)
    batches, opening = Batches.of(spec), partial(_open, model, params=params, options=checked)
    session = opening(spec) if batches is None else batches.opened(opening)
    again = partial(_runtime, model, params=params, forward=checked.forward)
    others = None if batches is None else partial(empirical.opened, session.graph, session.runtime, batches, again)
    plan, weights = _drawn(session, progress, others)
    if checked.certify:
        plan = _certified(session, plan, weights)
    session.runtime.write(weights, rollback=checked.rollback)
    return _report(session.runtime, plan, model)


def initialized(model: Any, input_spec: Any = None, mode: Any = "analytic", **options: Any) -> tuple[Any, Report]:
    """As :func:`initialize`, on a copy: ``(new model or params, report)``, as ``sorted`` is to ``list.sort``.

    Raises:
        ConfigError: a model that holds its variables cannot be copied. Else as :func:`initialize`.
    """
    model = copied(model, _backend(model)[0])
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
    checked, spec = _parsed(input_spec, mode, options)
    batches, opening = Batches.of(spec), partial(_open, model, params=params, options=checked)
    return (opening(spec) if batches is None else batches.opened(opening)).plan


def apply(planned: Plan, model: Any, input_spec: Any = None, *, params: Any = None) -> Report:
    """Write a plan (from :func:`plan`, ``report.plan`` or JSON) to a model with the same parameters.

    Raises:
        PlanError: a planned parameter is missing or has another shape.
    """
    runtime = _runtime(model, input_spec if input_spec is not None else (), params)
    shapes = {name: shape for name, _, shape, _, _ in runtime.parameters()}
    for w in planned.weights:
        if shapes.get(w.name) != w.shape:
            raise PlanError(
                "The plan does not fit this model",
                value=f"{w.name}: planned {w.shape}, found {shapes.get(w.name)}",
                remedy="Plan again for this model.",
            )
    runtime.write(materialize(planned, runtime.read))
    return _report(runtime, planned, model)


Plan._apply = staticmethod(apply)  # pyright: ignore[reportPrivateUsage]
Profile._draw = staticmethod(draw)


def diagnose(
    model: Any, batch: Any = None, loss: Any = None, *, params: Any = None, optimizer: Any = ("adam", 1e-3)
) -> Diagnosis:
    """Look at a model as it is, whoever initialized it: signals, gradients, and what is wrong with them.

    The model runs once forward and once backward on the batch; it, its buffers and the random state are left unchanged.

    Args:
        model: of any supported framework, as in :func:`initialize`.
        batch: as ``input_spec`` there; a shape stands for synthetic input.
        loss: ``loss(model, batch)`` returning a number, recorded as ``forward=`` is there. With it, gradients are
            the loss's own, the first step is judged and the first loss compared with log(classes). Without it,
            gradients are those of a random combination of the outputs.
        params: parameters of a model that keeps them apart.
        optimizer: ``("sgd" or "adam", learning rate)`` of the first step.

    Returns:
        A :class:`Diagnosis`; ``assert_healthy()`` raises on any finding.

    Raises:
        ConfigError: an argument is unusable. TraceError: the model could not be run on this input.
    """
    step = _options.optimizer(optimizer)
    if loss is not None and not callable(loss):
        raise ConfigError("loss is not callable.", value=loss, remedy="Pass a function loss(model, batch).")
    runtime = _runtime(model, batch, params, loss)
    graph = canonical(runtime.record())
    facts = measure(runtime, graph, Optimizer(*step), loss=loss is not None)
    if loss is not None and facts.loss is None:
        raise ConfigError(
            "loss returned something else than one number.", remedy="Return a scalar, a mean over the batch."
        )
    return Diagnosis.of(facts)


def propagate(
    target: Any, input_spec: Any = None, *, gain: Any = "std", width: int = 1000, depth: int = 100, pairs: int = 3,
    seed: int = 0, params: Any = None, forward: Any = None,
) -> Propagation:  # fmt: skip
    """Norm and angle of pairs of inputs after every layer, measured and predicted.

    Args:
        target: an activation (name or function; see :func:`activation_profile`), a list of them, a mapping of titles
            to them, or a model.
        input_spec: for a model, a batch (samples 0 and 1, 2 and 3, ... are the pairs) or a shape, as in
            :func:`initialize`. Its weights stay as they are and are taken as given.
        gain: for an activation, the factor on it: ``std``, ``rms``, ``grad`` (see :meth:`Profile.gain`) or a number,
            in a net of independent Gaussian weights of variance ``1 / width``; or ``anyinit``: the net as this library
            initializes it. A mapping gives each target of a list or mapping its own.
        width, depth, pairs, seed: of the net built around an activation.
        params, forward: for a model, as in :func:`initialize`.

    Returns:
        Curves with arrays of shape (layer, pair); ``print`` shows the ends, ``.plot()`` draws them. For the ``anyinit``
        net and for models the predictions are one column: of the first pair, or of the mean over all pairs of samples.

    Raises:
        ConfigError: an argument is unusable.
        TraceError, BackendNotFoundError: as :func:`initialize`.
    """
    named = isinstance(target, (str, list, tuple, Mapping))
    if input_spec is None and (named or (callable(target) and not _is_model(target))):
        return Propagation(study.nets(target, gain, width, depth, pairs, seed))
    extra = {} if forward is None else {"forward": forward}
    checked, spec = _parsed(input_spec, "analytic", {"skip": "*", **extra})
    session = _open(target, spec, params, checked)
    return Propagation([study.of_model(session.solver, session.runtime, type(target).__name__)])


def _is_model(target: Any) -> bool:
    """Whether a framework that is loaded takes this for a model."""
    try:
        _backend(target)
    except (BackendNotFoundError, BackendUnavailableError):
        return False
    return True


def known_backends() -> tuple[str, ...]:
    """Frameworks this version knows."""
    return tuple(BACKENDS)


def available_backends() -> tuple[str, ...]:
    """Known frameworks that are installed."""
    from importlib.util import find_spec

    return tuple(name for name in BACKENDS if find_spec(name) is not None)


def _parsed(input_spec: Any, mode: Any, options: Mapping[str, Any]) -> tuple[Options, Any]:
    known = [*inspect.signature(_options.parse).parameters][2:]
    for name in options:
        if name not in known:
            raise ConfigError("There is no option of this name", value=name, remedy=_options.near(name, known))
    return _options.parse(input_spec, mode, **options)


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
            remedy="Install one, for example with: pip install 'anyinit[torch]'; "
            f"there are extras for {', '.join(BACKENDS)}.",
        )
    raise _no_model(model, missing)


def _no_model(model: Any, missing: Iterable[str]) -> BackendNotFoundError:
    """What was passed in place of a model, and what to pass instead."""
    kinds = (
        "Pass a torch.nn.Module, a Keras, Flax, Equinox or Haiku model, a tf.Module, or a function of (params, inputs)."
    )
    value, remedy = f"{type(model).__module__}.{type(model).__qualname__}", kinds
    if isinstance(model, str):
        value = f"the string {model!r}"
        remedy = f"Nothing is loaded by name or from a file: build the model first and pass the object. {kinds}"
    elif isinstance(model, type):
        value = f"the class {model.__qualname__}"
        remedy = f"Pass an instance of it, {model.__qualname__}(...). {kinds}"
    elif isinstance(model, Mapping):
        remedy = f"Parameters alone say nothing about how they are used: pass the model they belong to. {kinds}"
    elif isinstance(model, (tuple, list)):
        remedy = f"The model comes first, then the input; a list of layers has to be made a model. {kinds}"
    hint = f" Not installed: {', '.join(missing)}." if missing else ""
    return BackendNotFoundError("This is no model of a supported framework", value=value, remedy=remedy + hint)


def _runtime(model: Any, spec: Any, params: Any, forward: Any = None) -> Any:
    """A model opened by its framework; only some of them know parameters that live apart."""
    return _backend(model)[1].open_model(model, spec, forward=forward, **({} if params is None else {"params": params}))


def _open(model: Any, spec: Any, params: Any, options: Options) -> _Session:
    runtime = _runtime(model, spec, params, options.forward)
    if options.mode == "empirical" and not runtime.batch_given:
        raise ConfigError(
            "Empirical mode measures on real data and got none",
            value=spec,
            remedy="Pass a batch as input_spec, or use mode='analytic'.",
        )
    options = _located(options, runtime)
    facts = runtime.parameters()
    names = [n for name, aliases, *_ in facts for n in (name, *aliases)]
    if unmatched := options.unmatched(names):
        missing = _options.label(unmatched[0])
        raise ConfigError("A pattern matches no parameter", value=missing, remedy=_options.near(missing, names))
    aliases = {name: others for name, others, *_ in facts}
    shapes = {name: shape for name, _, shape, *_ in facts}
    graph = canonical(runtime.record())
    kept = dict(_kept(facts, options, getattr(runtime, "decided", dict[str, str])()))

    override = _override(graph, options, aliases)
    stock = _stock(runtime, options, [name for name in aliases if name not in kept])
    if options.scheme == "framework":
        how = "drawn again by the framework's own code" if stock else "as the framework drew it"
        kept = {name: f"{BY_DESIGN}: {how}" for name in aliases} | kept
    kept |= {name: f"{BY_REQUEST}: overrides" for name in aliases if override(name).get("distribution") == "keep"}
    fixed = {name: how for name, how in given(graph, override).items() if name not in kept}
    plain = biases(graph) if options.bias != "auto" else frozenset[str]()
    if options.bias == "keep":
        kept |= {name: f"{BY_REQUEST}: bias='keep'" for name in plain if name not in kept and name not in fixed}
    held = {**kept, **dict.fromkeys(fixed, "given by the caller")}
    walk = Walk(graph, lambda i, leaf: solver.param(i, leaf), runtime.input_arrays())
    own = options.scheme is None  # whether the solver decides, or a scheme
    solver = Solver(
        graph, walk, reader(lambda n: stock[n] if n in stock else runtime.read([n])[n], fixed, shapes), kept=held,
        share=own and options.residual != "none", distribution=options.distribution, roles=dict(options.roles),
        auto=own and options.target == "auto", mirror=own and options.mirror, target=options.level, override=override,
        critical=own and options.target == "critical",
        factor=lambda name: options.gain(name, *aliases.get(name, ())),
    )  # fmt: skip
    solver.levels.own = options.scheme == "lsuv"
    if options.bias == "zero":
        solver.policy.kept |= plain  # none for the policy to draw
    solver.solve()
    plan = simulate.refined(solver, build(solver, options.seed, kept, options.pairs(), fixed), runtime)
    return _Session(options, runtime, graph, solver, plan, stock)


def _stock(runtime: Any, options: Options, names: list[str]) -> Mapping[str, Any]:
    """The framework's own draw of the parameters that may be set, from frameworks that can be asked for one."""
    draw = getattr(runtime, "stock", None)
    return draw(names, options.seed) if options.scheme == "framework" and draw is not None else {}


def _override(
    graph: Graph, options: Options, aliases: Mapping[str, tuple[str, ...]]
) -> Callable[[str], dict[str, Any]]:
    """What wins over the solver for each parameter: the caller's fields, then a scheme, then a common bias."""
    schemes = cache(lambda: Schemes(graph))
    plain = biases(graph) if options.bias_value is not None else frozenset[str]()
    common: dict[str, Any] = {"distribution": "constant", "value": options.bias_value}

    def override(name: str) -> dict[str, Any]:
        own = options.override(name, *aliases.get(name, ()))
        scheme, amount = own.pop("scheme", options.scheme), own.pop("amount", options.amount)
        base = schemes().fields(name, scheme, amount) if scheme else {}
        if own.keys() & {"distribution", "std", "value"}:
            base = {}
        return {**(common if name in plain else {}), **base, **own}

    return override


def _located(options: Options, runtime: Any) -> Options:
    """The options with modules in ``only`` and ``skip`` replaced by the names the model knows them under."""
    find = getattr(runtime, "paths_of", lambda _: None)

    def names(option: str) -> Iterable[_options.Pattern]:
        for pattern in getattr(options, option):
            paths = None if isinstance(pattern, str) else find(pattern)
            if paths is not None and not paths:
                remedy = "Pass a module that model.named_modules() lists."
                raise ConfigError(
                    f"A module in {option} is no part of the model", value=_options.label(pattern), remedy=remedy
                )
            yield from (pattern,) if paths is None else paths

    return replace(options, only=tuple(names("only")), skip=tuple(names("skip")))


def _kept(
    facts: Iterable[tuple[str, tuple[str, ...], tuple[int, ...], str, bool]],
    options: Options,
    decided: Mapping[str, str],
) -> Iterable[tuple[str, str]]:
    for name, aliases, _, _, trainable in facts:
        if name in decided:
            yield name, f"{BY_DESIGN}: {decided[name]}"
        elif not trainable:
            yield name, f"{BY_REQUEST}: requires no gradient"
        elif not options.selects(name, *aliases):
            yield name, f"{BY_REQUEST}: only= or skip="


def _drawn(session: _Session, progress: Any, others: Any = None) -> tuple[Plan, Mapping[str, Any]]:
    """The draw, corrected or measured where that is due."""
    options, solver, runtime = session.options, session.solver, session.runtime
    weights = {**session.stock, **materialize(session.plan, runtime.read, progress=progress)}
    if options.mode == "empirical":
        return empirical.settle(solver, session.plan, weights, runtime, others, progress)
    chosen = {d.leaf for d in correct.placed(solver)} if options.correct == "always" else set[int]()
    if options.correct == "auto" and options.scheme is None:
        chosen = correct.needed(solver, session.plan)
    if not chosen and not runtime.batch_given:
        return session.plan, weights
    found = correct.run(solver, runtime, weights, chosen, progress=progress)
    plan = correct.record(session.plan, solver, found, corrected=bool(chosen))
    return plan, (rematerialize(session.plan, weights, plan, runtime.read) if chosen else weights)


def _certified(session: _Session, planned: Plan, weights: Mapping[str, Any]) -> Plan:
    """The plan with its certificates."""
    if not hasattr(session.runtime, "sample_gradients"):
        raise ConfigError(
            "Certificates need gradients of single samples, which this framework's runtime does not give",
            value=type(session.runtime).__name__, remedy="Leave certify out.",
        )  # fmt: skip
    found = certify.measure(session.graph, session.solver.uses, session.runtime, weights)
    return replace(planned, certificates=found)


def _report(runtime: Any, planned: Plan, model: Any) -> Report:
    return Report(
        planned, model=getattr(runtime, "model_result", None) or model, params=getattr(runtime, "params_result", None)
    )


__all__ = [
    "AnyInitError", "activation_profile", "apply", "available_backends", "diagnose", "gain", "initialize",
    "initialize_params", "initialized", "known_backends", "plan", "propagate", "register_activation",
    "registered_activations", "unregister_activation",
]  # fmt: skip
