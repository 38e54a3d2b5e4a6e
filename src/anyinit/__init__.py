"""AnyInit: initialize any neural network, in any framework, and know what to expect of it.

Importing this package loads no framework, no SciPy and no Matplotlib: every public name is fetched
from its module when it is first used.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anyinit._api import (
        activation_profile,
        apply,
        available_backends,
        diagnose,
        gain,
        initialize,
        initialize_params,
        initialized,
        known_backends,
        plan,
        propagate,
        register_activation,
        registered_activations,
        unregister_activation,
    )
    from anyinit._entries import init_
    from anyinit._health.view import Diagnosis
    from anyinit._solve.plan import Plan
    from anyinit.errors import (
        ActivationError,
        AnyInitError,
        BackendNotFoundError,
        BackendUnavailableError,
        ConfigError,
        PlanError,
        TraceError,
        UnhealthyError,
    )
    from anyinit.report import Explanation, Report
    from anyinit.report.constants import explain

__version__ = "0.1.0"

__all__ = [
    "initialize",
    "initialized",
    "initialize_params",
    "plan",
    "propagate",
    "apply",
    "diagnose",
    "explain",
    "register_activation",
    "unregister_activation",
    "registered_activations",
    "activation_profile",
    "gain",
    "init_",
    "available_backends",
    "known_backends",
    "Plan",
    "Report",
    "Diagnosis",
    "Explanation",
    "ActivationError",
    "AnyInitError",
    "BackendNotFoundError",
    "BackendUnavailableError",
    "ConfigError",
    "PlanError",
    "TraceError",
    "UnhealthyError",
    "__version__",
]

_HOMES = {
    "init_": "anyinit._entries",
    "Plan": "anyinit.report",
    "Report": "anyinit.report",
    "Explanation": "anyinit.report",
    "explain": "anyinit.report.constants",
    "Diagnosis": "anyinit._health.view",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'anyinit' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    home = _HOMES.get(name) or ("anyinit.errors" if name.endswith("Error") else "anyinit._api")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
