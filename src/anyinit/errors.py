"""Exceptions. Every message carries a cause, the offending value and a remedy."""

from __future__ import annotations

from collections.abc import Iterable


class AnyInitError(Exception):
    """Base of every error raised on purpose by this library.

    Args:
        cause: what is wrong, one sentence.
        value: the offending value, as the user would recognise it; omitted when empty.
        remedy: what to do next.
    """

    def __init__(self, cause: str, *, value: object = None, remedy: str = "") -> None:
        self.cause, self.value, self.remedy = cause, value, remedy
        parts = [cause.rstrip(".") + "."]
        if value is not None:
            parts.append(f"Got: {value!r}." if not isinstance(value, str) else f"Got: {value}.")
        if remedy:
            parts.append(remedy)
        super().__init__(" ".join(parts))


class ConfigError(AnyInitError, ValueError):
    """An argument is unusable; nothing was touched."""


class ActivationError(ConfigError):
    """An activation function cannot be profiled (not elementwise, random, NaN, grows too fast)."""


class BackendNotFoundError(AnyInitError):
    """The model belongs to no supported framework."""


class BackendUnavailableError(AnyInitError):
    """The framework is known but not installed."""


class TraceError(AnyInitError):
    """The model could not be run or recorded; the original exception is chained."""


class PlanError(AnyInitError):
    """A plan does not fit the model it is applied to."""


class UnhealthyError(AnyInitError, AssertionError):
    """Raised by ``assert_healthy``; the message lists every finding."""


def near(name: str, known: Iterable[str], limit: int = 24) -> str:
    """A sentence that names close matches of ``name``, or lists at most ``limit`` of what is known."""
    import difflib  # only ever needed on the way to an error

    options = sorted(known)
    close = difflib.get_close_matches(name.lower(), options, n=3, cutoff=0.6)
    if close:
        return "Did you mean " + " or ".join(repr(c) for c in close) + "?"
    more = ", ..." if len(options) > limit else ""
    return "Choose one of " + ", ".join(repr(o) for o in options[:limit]) + more + "."


def could_not_run(error: Exception, done: str = "run", also: str = "") -> TraceError:
    """The error of a model that could not be run on its input, with what the framework said; chain ``error`` to it.
    ``also``: what else to check."""
    import re  # only ever needed on the way to an error

    plain = re.sub(r"\x1b\[\d*m", "", str(error))
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    return TraceError(
        f"The model could not be {done} on this input",
        value=f"{type(error).__name__}: {' '.join(lines[:2])}".rstrip("."),
        remedy=f"{also} ".lstrip()
        + "Check the shape and type of the input (the first dimension counts the samples of a batch), "
        "or pass forward=, a callable (model, batch) that runs the model.",
    )
