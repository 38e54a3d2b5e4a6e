"""The moment map of one activation: levels, slopes, angles, gains and what depth makes of them.

Definitions follow Poole et al. 2016 and Schoenholz et al. 2017: pre-activations are ``N(0, q)``,
``V(q) = sigma_w^2 E f(sqrt(q) z)^2 + sigma_b^2`` is the level map, ``chi_1 = sigma_w^2 E f'(sqrt(q) z)^2``.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anyinit import _notebook
from anyinit._core import fixed
from anyinit._core.gaussian import Integrand, Moments, checked, pair
from anyinit._core.registry import Resolved, resolve
from anyinit.errors import ActivationError, ConfigError

Array = NDArray[np.float64]
Convention = Literal["rms", "std", "grad"]

HELD_LEVEL = 100.0
"""Growth of a relative error of the level that a depth may have."""
HELD_GRADIENT = 10**2.2
"""Ratio of gradients over a path that still trains (measured on a benchmark)."""

_KEPT = 256
_cache: OrderedDict[tuple[Any, ...], Profile] = OrderedDict()


class EdgePoint(NamedTuple):
    """A point of the edge of chaos (``chi_1 = 1``): weight and bias scales and the level ``q`` they hold."""

    sigma_w: float
    sigma_b2: float
    q: float


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """What unit level means for an activation.

    sigma_star: standard deviation of the argument at which ``E f^2 = 1`` (``None``: there is none, or every one).
    reachable: smallest and largest ``E f^2`` over all variances when there is no ``sigma_star``, else ``None``.
    error: bound on the relative error of ``E f^2`` at the operating level.
    """

    sigma_star: float | None
    reachable: tuple[float, float] | None
    error: float


class Profile:
    """Everything known about one activation, computed from its values alone.

    Obtained from :func:`activation_profile`. Numbers come from adaptive quadrature, to about 1e-13 relative.
    """

    _draw: ClassVar[Callable[..., tuple[Any, Any]] | None] = None  # handed down by the report
    _pictures: ClassVar[Any] = None  # handed down by the public functions: this room draws nothing

    def __init__(self, resolved: Resolved) -> None:
        self.name = resolved.name
        self.params: dict[str, Any] = dict(resolved.params)
        self._integrand = Integrand(resolved.fn, self.label, resolved.guard)

    @property
    def label(self) -> str:
        """Name with the parameters that were given: ``leaky_relu(negative_slope=0.2)``."""
        inside = ", ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in self.params.items())
        return f"{self.name}({inside})" if inside else self.name

    @property
    def integrand(self) -> Integrand:
        """The function with its quadrature tables."""
        return self._integrand

    def __call__(self, x: ArrayLike) -> Array:
        """Values of the activation in float64, of the shape of ``x``."""
        return self._integrand.f(np.asarray(x, np.float64))

    def moments(self, mean: float = 0.0, variance: float = 1.0) -> Moments:
        """Moments of ``f(x)`` for ``x ~ N(mean, variance)``: ``.mean .m2 .m4 .variance .grad2 .error``.

        Raises:
            ConfigError: the mean or variance is not finite, or the variance negative.
            ActivationError: NaN within reach, or ``E f^2`` diverges.
        """
        return self._integrand.moments(mean, variance)

    def hermite(self, degrees: int = 64, *, mean: float = 0.0, variance: float = 1.0) -> Array:
        """Coefficients on the orthonormal Hermite polynomials; ``E f(u) f(v) = sum c_k^2 rho^k``."""
        return self._integrand.hermite(mean, variance, degrees)

    def angle_map(self, rho: ArrayLike, *, mean: float = 0.0, variance: float = 1.0) -> Any:
        """Cosine of two outputs whose arguments have correlation ``rho``: ``E f(u) f(v) / E f^2``, mean included.

        Args:
            rho: a number or an array in [-1, 1]; the result has its shape.
            mean, variance: of both arguments.
        Source: Poole et al. 2016, eq. 5, with zero bias. Its slope at ``rho = 1`` is ``chi_1`` at that variance.
        """
        points = np.asarray(rho, np.float64)
        level = self.moments(mean, variance).m2
        if level == 0:
            raise ActivationError(f"The activation {self.label} is zero almost everywhere, so it has no angle map")
        twice = ((mean, mean), (variance, variance))
        values = [pair(self._integrand, self._integrand, float(r), *twice)[0] / level for r in points.reshape(-1)]
        return np.array(values).reshape(points.shape) if points.ndim else values[0]

    @cached_property
    def homogeneous_degree(self) -> float | None:
        """``d`` where ``f(c x) = c^d f(x)`` for every ``c > 0``, else ``None``."""
        return fixed.degree(self._integrand.f)

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """Self-consistent level, or the range of levels that can be reached."""
        sigma, reachable = fixed.unit_level(self._integrand, self.homogeneous_degree)
        at = self.moments(0.0, 1.0 if sigma is None else sigma * sigma)
        return Diagnostics(sigma, reachable, at.errors["m2"] / at.m2 if at.m2 > 0 else 0.0)

    @property
    def operating_variance(self) -> float:
        """Variance of the argument at which ``chi`` and ``chi_1`` are quoted: ``sigma_star^2``, else 1."""
        sigma = self.diagnostics.sigma_star
        return 1.0 if sigma is None else sigma * sigma

    @property
    def chi(self) -> float:
        """Level slope ``d log E f^2 / d log variance``: what one layer multiplies a small error of the log level by."""
        return self.level_slope(self.operating_variance)

    @property
    def chi_1(self) -> float:
        """Gradient gain per layer when the level is held: ``q E f'^2 / E f^2`` (jumps carry no derivative)."""
        q = self.operating_variance
        at = self.moments(0.0, q)
        return q * at.grad2 / at.m2 if at.m2 > 0 else math.nan

    def level_slope(self, variance: float) -> float:
        """``d log E f(x)^2 / d log variance`` at zero mean."""
        at = self.moments(0.0, variance)
        return at.slope / at.m2 if at.m2 > 0 else math.nan

    def gain(self, convention: Convention = "rms", *, variance: float = 1.0) -> float:
        """Factor on the weights' scale that undoes the activation.

        ``rms``: ``1 / sqrt(E f^2)``, unit second moment (He et al. 2015). ``std``: ``1 / sqrt(Var f)``.
        ``grad``: ``1 / sqrt(E f'^2)``, unit gradient gain.

        Raises:
            ConfigError: unknown convention.
            ActivationError: the quantity to be undone is zero or infinite.
        """
        at = self.moments(0.0, variance)
        known = {"rms": at.m2, "std": at.variance, "grad": at.grad2}
        if convention not in known:
            raise ConfigError("Unknown convention for a gain", value=convention, remedy=f"Use {', '.join(known)}.")
        value = known[convention]
        if not (0.0 < value < math.inf) or (convention == "std" and value <= 64 * at.error):
            what = {"rms": "second moment", "std": "variance", "grad": "mean squared derivative"}[convention]
            raise ActivationError(
                f"The activation {self.label} has no {convention} gain: its {what} is {value:.3g}",
                remedy="Use another convention.",
            )
        return 1.0 / math.sqrt(value)

    def edge_of_chaos(self, q: float | None = None, *, sigma_b2: float | None = None) -> EdgePoint:
        """The point of the curve ``chi_1 = 1`` at level ``q``, or at bias variance ``sigma_b2``.

        ``sigma_w^2 = 1 / E f'(sqrt(q) z)^2``, ``sigma_b^2 = q - sigma_w^2 E f(sqrt(q) z)^2`` (Schoenholz et al. 2017).
        ``q = 0`` is the limit. Given ``sigma_b2``, the smallest such ``q``.

        Raises:
            ConfigError: not exactly one of the two was given, or it is negative.
            ActivationError: no such point (the bias variance would be negative, or the derivative vanishes).
        """
        if (q is None) == (sigma_b2 is None):
            raise ConfigError("Give exactly one of q and sigma_b2", value=(q, sigma_b2))
        if q is not None:
            point = self._edge(checked(0.0, q)[1])
            if point.sigma_b2 < -1e-12 * max(q, 1e-4):
                raise ActivationError(
                    f"The edge of chaos of {self.label} does not pass through this level",
                    value=f"q = {q:g} needs a bias variance of {point.sigma_b2:.4g}",
                    remedy="Choose another q.",
                )
            return point._replace(sigma_b2=max(point.sigma_b2, 0.0))
        assert sigma_b2 is not None
        bias = checked(0.0, sigma_b2)[1]
        found = fixed.edge_level(lambda level: self._edge(level).sigma_b2, bias)
        if found is None:
            raise ActivationError(
                f"The edge of chaos of {self.label} has no point of this bias variance", value=f"sigma_b2 = {bias:g}"
            )
        return EdgePoint(self._edge(found).sigma_w, bias, found)

    def edge_slope(self, q: float) -> float:
        """``V'(q)`` on the edge of chaos: levels are attracted below 1 and repelled above."""
        at = self.moments(0.0, q)
        return at.slope / (q * at.grad2)

    def _edge(self, q: float) -> EdgePoint:
        at = self.moments(0.0, max(q, 1e-16))  # the limit, also where the derivative jumps at zero
        if not 0.0 < at.grad2 < math.inf:
            raise ActivationError(
                f"The activation {self.label} has no edge of chaos", value=f"E f'^2 = {at.grad2:g} at q = {q:g}"
            )
        return EdgePoint(1.0 / math.sqrt(at.grad2), max(q, 1e-16) - at.m2 / at.grad2, q)

    @property
    def kinks(self) -> tuple[float, ...]:
        """Points within 16 of zero where the derivative jumps."""
        return self._integrand.kinks

    @property
    def jumps(self) -> tuple[float, ...]:
        """Points within 16 of zero where the value jumps."""
        return self._integrand.jumps

    @property
    def verdict(self) -> str:
        """In a sentence: whether a unit level can be held, and to how many plain layers level and gradient last.

        An error of the level may grow to 100 times itself, gradients may differ by a factor of 160; both at the
        operating variance, without normalization and residual connections.
        """
        if self.moments(0.0, self.operating_variance).m2 == 0:
            return "Zero almost everywhere: nothing passes."
        said = list[str]()
        reach = self.diagnostics.reachable
        if reach is not None:
            said.append(f"No argument gives a unit level: E f^2 stays between {reach[0]:.3g} and {reach[1]:.3g}.")
        level = math.log(HELD_LEVEL) / math.log(self.chi) if self.chi > 1 + 1e-6 else math.inf
        slope = abs(math.log(self.chi_1)) if self.chi_1 > 0 else math.inf
        gradient = math.log(HELD_GRADIENT) / slope if slope > 1e-6 else math.inf
        if level == math.inf:
            said.append(f"The level holds at any depth (chi = {self.chi:.3g}).")
        else:
            said.append(f"The level holds for about {level:.0f} plain layers (chi = {self.chi:.3g}).")
        if gradient == 0:
            said.append("No gradient passes (chi_1 = 0).")
        elif gradient == math.inf:
            said.append(f"So does the gradient (chi_1 = {self.chi_1:.3g})." if level == gradient else "")
        else:
            way = "shrinks" if self.chi_1 < 1 else "grows"
            said.append(f"The gradient {way} by {self.chi_1:.3g} a layer, for about {gradient:.0f} of them.")
        if min(level, gradient) < math.inf:
            said.append("Deeper: normalize, or add residual connections.")
        return " ".join(filter(None, said))

    def plot_map(self, ax: Any = None) -> tuple[Any, Any]:
        """The moment map ``q -> V(q)``, the gradient gain beside it, and the function with its kinks and jumps.

        Args:
            ax: nothing; or one Matplotlib axes (map alone), two (map, gradient) or three.

        Returns:
            figure and array of axes; :meth:`map_data` has the same as columns.

        Raises:
            BackendUnavailableError: Matplotlib is not installed. ConfigError: another number of axes.
        """
        return self._drawer.draw_map(self, ax)

    def map_data(self) -> dict[str, Any]:
        """What :meth:`plot_map` shows: columns ``q``, ``next_q``, ``chi_1``, ``x``, ``f``; ``kinks``, ``jumps`` ..."""
        return self._drawer.map_data(self)

    def plot_phase(
        self, ax: Any = None, *, point: tuple[float, float] | None = None, limits: tuple[float, float] | None = None
    ) -> tuple[Any, Any]:
        """The plane of weight variance ``fan_in * Var w`` and bias variance: phases, levels, and where ``chi_1 = 1``.

        Args:
            ax: one Matplotlib axes, or nothing.
            point: ``(sigma_w^2, sigma_b^2)`` to mark; by default those that hold a unit level without biases.
            limits: largest ``sigma_w^2`` and ``sigma_b^2`` shown.

        Returns:
            figure and array of one axes; :meth:`phase_data` has the same as arrays.

        Raises:
            BackendUnavailableError: Matplotlib is not installed. ConfigError: another number of axes.
        Source: Poole et al. 2016, figure 1; Schoenholz et al. 2017, figure 1.
        """
        return self._drawer.draw_phase(self, ax, point, limits)

    def phase_data(
        self, *, point: tuple[float, float] | None = None, limits: tuple[float, float] | None = None
    ) -> dict[str, Any]:
        """What :meth:`plot_phase` shows: axes ``sigma_w2`` and ``sigma_b2``, grids ``q`` and ``chi_1`` of shape
        (sigma_b2, sigma_w2) with infinity where no level is held, the ``edge`` as (sigma_w2, sigma_b2, q) rows, and
        the ``point``."""
        return self._drawer.phase_data(self, point, limits)

    @property
    def _drawer(self) -> Any:
        if Profile._pictures is None:
            raise ConfigError("Nothing can draw yet", remedy="Get the profile from anyinit.activation_profile.")
        return Profile._pictures

    def rows(self) -> list[tuple[str, str]]:
        """What :func:`print` shows, as pairs of label and text."""
        at, diagnosis = self.moments(), self.diagnostics
        rows = [
            ("E f", f"{at.mean if abs(at.mean) > at.errors['mean'] else 0.0:.10g}"),
            ("E f^2", f"{at.m2:.10g}"),
            ("E f'^2", f"{at.grad2:.10g}"),
        ]
        if diagnosis.sigma_star is not None:
            rows.append(("sigma*", f"{diagnosis.sigma_star:.10g}"))
        elif diagnosis.reachable is not None:
            rows.append(("E f^2 between", f"{diagnosis.reachable[0]:.4g} and {diagnosis.reachable[1]:.4g}"))
        rows += [("chi", f"{self.chi:.6g}"), ("chi_1", f"{self.chi_1:.6g}")]
        if self.homogeneous_degree is not None:
            rows.append(("degree", f"{self.homogeneous_degree:g}"))
        for label, points in (("kinks", self.kinks), ("jumps", self.jumps)):
            if points:
                more = f" and {len(points) - 4} more" if len(points) > 4 else ""
                rows.append((label, ", ".join(f"{p:.6g}" for p in points[:4]) + more))
        return rows

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """The function with its kinks and jumps, and the level ``E f^2`` over the variance of its argument.

        Args:
            ax: two Matplotlib axes to draw on instead of a new figure.
        Returns:
            figure and axes.
        Raises:
            BackendUnavailableError: Matplotlib is not installed.
            ConfigError: ``ax`` holds another number of axes.
        """
        if Profile._draw is None:
            raise ConfigError("Nothing can draw a profile yet", remedy="Import anyinit first.")
        return Profile._draw(self, ax)

    def __repr__(self) -> str:
        return f"Profile({self.label}: {'; '.join(f'{k} = {v}' for k, v in self.rows())})"

    def _repr_html_(self) -> str:
        return _notebook.view(self.label, _notebook.table((), self.rows()), _notebook.lines([self.verdict]))


def activation_profile(activation: Any, /, **params: Any) -> Profile:
    """The profile of an activation: a name, a NumPy or framework function, a module or a module class.

    Args:
        activation: ``"gelu"``, ``np.tanh``, ``torch.relu``, ``nn.GELU``, ``lambda x: np.maximum(x, 0) ** 3`` ...
        params: its parameters (``activation_profile("leaky_relu", negative_slope=0.2)``).
    Raises:
        ConfigError: unknown name or parameter.
        ActivationError: the function is random, not elementwise or NaN; or ``E f^2`` diverges (on first use).
    """
    if isinstance(activation, Profile):
        return activation
    resolved = resolve(activation, params)
    if resolved.key is None:
        return Profile(resolved)
    if resolved.key not in _cache:
        _cache[resolved.key] = Profile(resolved)
        if len(_cache) > _KEPT:
            _cache.popitem(last=False)
    return _cache[resolved.key]


def gain(activation: Any, /, *, convention: Convention = "rms", **params: Any) -> float:
    """Gain of an activation at unit variance; see :meth:`Profile.gain`."""
    return activation_profile(activation, **params).gain(convention)
