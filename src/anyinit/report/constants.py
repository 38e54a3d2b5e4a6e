"""Well-known constants: what each is, computed when asked, whose it is, and when it is right."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, ndtr

from anyinit._core.profile import Profile, activation_profile
from anyinit._solve.plan import Term
from anyinit.errors import ConfigError, near
from anyinit.report.explanation import Explanation

HE, GLOROT, LECUN = "He et al. 2015, eq. 10", "Glorot & Bengio 2010, eq. 12", "LeCun et al. 1998, section 4.6"
POOLE = "Poole et al. 2016, eq. 3"
Maker = Callable[[], Explanation]


def _m2(profile: Profile, q: float = 1.0) -> float:
    return profile.moments(0.0, q).m2


def _he() -> Explanation:
    relu = activation_profile("relu")
    half = _m2(relu)
    return Explanation(
        "2/fan_in, He's variance", "gain squared", 1 / half, "1 / E[f(z)^2]",
        (Term("E[f(z)^2]", half, -1, "relu zeroes one half of a symmetric signal"),
         Term("chi", relu.chi, 0, "slope of the level: errors neither grow nor fade")),
        ("as a uniform draw its bound is sqrt(6 / fan_in): a^2 / 3 = 2 / fan_in",),
        "relu follows, biases are zero and the weights before were independent; it holds levels, not angles", HE,
    )  # fmt: skip


def _lecun() -> Explanation:
    one = _m2(activation_profile("identity"))
    return Explanation(
        "1/fan_in, LeCun's variance", "gain squared", 1 / one, "1 / E[f(z)^2]",
        (Term("E[f(z)^2]", one, -1, "nothing follows: fan_in independent terms add their variances"),),
        (), "no activation follows, or one normalized to unit second moment (selu)", LECUN,
    )  # fmt: skip


def _xavier() -> Explanation:
    return Explanation(
        "2/(fan_in + fan_out), Xavier's variance", "numerator", 2.0, "2",
        (Term("2", 2, 1, "reciprocal of the mean of both fans: forward wants 1 / fan_in, backward 1 / fan_out"),
         Term("E[f(z)^2] of tanh", _m2(activation_profile("tanh")), 0, "derived for slope one: levels fall by this")),
        ("as a uniform draw its bound is sqrt(6 / (fan_in + fan_out))",),
        "the function is the identity near zero and fans differ little; exact in both directions only for equal fans",
        GLOROT,
    )  # fmt: skip


def _gain(name: str, convention: str) -> Maker:
    def make() -> Explanation:
        profile = activation_profile(name)
        at = profile.moments()
        rms = convention == "rms"
        value = at.m2 if rms else at.variance
        other = 1 / math.sqrt(at.variance if rms else at.m2)
        symbol = "E[f(z)^2]" if rms else "Var f(z)"
        held = "second moment" if rms else "variance"
        terms = [Term(symbol, value, -0.5, f"{held} of {name} on a unit normal, by quadrature")]
        if not rms:
            terms.append(Term("per layer", at.m2 / at.variance, 0, "growth of the second moment: the mean is not lost"))
        terms += [Term("the other", other, 0, f"gain that holds the {'variance' if rms else 'second moment'}"),
                  Term("chi", profile.level_slope(1.0), 0, "slope of the level at q = 1")]  # fmt: skip
        right = "arguments have unit variance; at chi > 1 errors of the level grow with depth"
        wrong = "a mean-free layer follows (a normalization over units); else the mean passes and levels grow"
        return Explanation(
            f"{1 / math.sqrt(value):.5g}, {name}'s {'rms' if rms else 'std'} gain", "gain", 1 / math.sqrt(value),
            f"1 / sqrt({symbol})", tuple(terms), (), right if rms else wrong,
            f"{HE}, with E f^2 of {name}" if rms else "a Monte Carlo estimate in circulation; holds Var f, not E f^2",
        )  # fmt: skip

    return make


def _fixed_level(level: Callable[[float], float], q: float = 1.0) -> float:
    for _ in range(400):
        q = level(q)
    return q


def _five_thirds() -> Explanation:
    tanh, gain = activation_profile("tanh"), 5 / 3
    q = _fixed_level(lambda q: gain**2 * _m2(tanh, q))
    at = tanh.moments(0.0, q)
    return Explanation(
        "5/3, called tanh's gain", "gain", gain, "5 / 3",
        (Term("5/3", gain, 1, "a round number: neither of the next two"),
         Term("rms gain", tanh.gain("rms"), 0, "holds a unit second moment"),
         Term("grad gain", tanh.gain("grad"), 0, "holds a unit gradient at q = 1"),
         Term("q*", q, 0, "level at which 5/3 settles"),
         Term("chi_1", gain**2 * at.grad2, 0, "growth of a squared gradient per layer there")),
        (), "a few layers: the level settles whatever the start, but gradients grow chi_1 times per layer",
        f"PyTorch's calculate_gain; what it does: {POOLE}, Schoenholz et al. 2017",
    )  # fmt: skip


def _lecun_tanh() -> Explanation:
    scaled = activation_profile(lambda x: 1.7159 * np.tanh(2 * x / 3))
    return Explanation(
        "1.7159, of 1.7159 tanh(2x/3)", "constant", 1.7159, "1.7159",
        (Term("1.7159", 1.7159, 1, "makes f(1) = 1 and f(-1) = -1"),
         Term("f(1)", float(scaled(1.0)), 0, "the value at one"),
         Term("E[f(z)^2]", _m2(scaled), 0, "second moment on a unit normal: near one, not one")),
        (), "inputs are normalized and targets are +1 and -1", "LeCun et al. 1998, section 4.4",
    )  # fmt: skip


def _share() -> Explanation:
    layers = 12
    n = 2 * layers
    return Explanation(
        "1/sqrt(2L), the scale of residual branches", "scale at L = 12", 1 / math.sqrt(n), "1 / sqrt(N)",
        (Term("N", n, -0.5, "branches on one stream: attention and feed-forward in each of L blocks"),
         Term("end, unit", 1 + n, 0, "second moment of the stream behind unit branches"),
         Term("end, shared", 1 + n / n, 0, "and behind branches of 1/N each")),
        (), "branches have no common mean; where they end in relu their means add coherently and need 1/N",
        "Radford et al. 2019, section 2.3; Zhang et al. 2019 (Fixup) without normalization",
    )  # fmt: skip


def _siren_hidden() -> Explanation:
    sine = activation_profile("sin")
    q = _fixed_level(lambda q: 2 * _m2(sine, q))
    return Explanation(
        "6/n, SIREN's hidden bound squared (over omega^2)", "n times variance", 6 / 3, "6 / 3",
        (Term("6", 6, 1, "square of the bound, times n"),
         Term("3", 3, -1, "a uniform draw on [-a, a] has variance a^2 / 3"),
         Term("wide", _m2(sine, 1e4), 0, "E sin^2 of a wide argument: the first argument has variance 2 * 0.5 = 1"),
         Term("E sin^2", _m2(sine), 0, "of a unit normal: less than 1/2"),
         Term("q*", q, 0, "variance at which arguments settle: 1 - exp(-2 q)")),
        ("the factor omega inside the sine is divided out of the weight and stays in its gradient",),
        "few layers: arguments settle below one; a level read from the graph holds them at one",
        "Sitzmann et al. 2020, section 3.2 and theorem 1.8",
    )  # fmt: skip


def _omega() -> Explanation:
    return Explanation(
        "30, SIREN's omega_0", "bandwidth per unit coordinate", 30 / math.sqrt(3), "omega / sqrt(3)",
        (Term("omega", 30, 1, "factor inside the first sine"),
         Term("3", 3, -0.5, "a uniform draw on [-1, 1] has variance 1/3"),
         Term("periods", 30 / math.pi, 0, "fitted by the fastest units into a coordinate that runs from -1 to 1")),
        (), "the target has about that many periods: it is a prior on bandwidth, not a matter of levels",
        "Sitzmann et al. 2020, section 3.2 (chosen by experiment)",
    )  # fmt: skip


def _gpt2() -> Explanation:
    width = 768
    return Explanation(
        "0.02, GPT-2's standard deviation", "standard deviation", 0.02, "0.02",
        (Term("0.02", 0.02, 1, "fixed, whatever the fan"),
         Term("width", 1 / 0.02**2, 0, "fan_in at which it would be 1 / sqrt(fan_in)"),
         Term("at 768", width * 0.02**2, 0, "second moment behind a unit input of 768 numbers"),
         Term("first loss", math.log(50257), 0, "ln V: logits this small start at a uniform guess")),
        (), "every layer reads a normalized input: then a scale only sets the first steps' size",
        "Radford et al. 2018, section 4.1; Devlin et al. 2019",
    )  # fmt: skip


def _quick_gelu() -> Explanation:
    x = np.linspace(-8, 8, 20001)
    worst = lambda c: float(np.abs(ndtr(x) - expit(c * x)).max())  # noqa: E731
    found: Any = minimize_scalar(worst, bounds=(1.5, 1.9), method="bounded", options={"xatol": 1e-9})
    best = float(found.x)
    gains = [activation_profile(f).gain("rms") for f in ("gelu", lambda x: x * expit(1.702 * x))]
    return Explanation(
        "1.702, of x sigmoid(1.702 x)", "constant", best, "argmin_c max_x |Phi(x) - sigmoid(c x)|",
        (Term("c", best, 1, "minimax fit of the logistic to the normal distribution function"),
         Term("error", worst(best), 0, "largest difference of the two functions"),
         Term("gelu", gains[0], 0, "rms gain of the exact gelu"),
         Term("quick", gains[1], 0, "rms gain of the approximation")),
        (), "gelu is to be approximated; the gain changes in the third digit", "Hendrycks & Gimpel 2016, section 2",
    )  # fmt: skip


def _selu() -> Explanation:
    at = activation_profile("selu").moments()
    mean = 0.0 if abs(at.mean) < 1e-12 else at.mean
    return Explanation(
        "1.0507 and 1.6733, selu's lambda and alpha", "E[f(z)^2]", at.m2, "E[f(z)^2]",
        (Term("E[f(z)^2]", at.m2, 1, "one: a unit level needs no gain"),
         Term("E[f(z)]", mean, 0, "zero: the constants were made for both"),
         Term("chi", activation_profile("selu").chi, 0, "slope of the level: errors fade"),
         Term("3/4", 0.75, 0, "PyTorch's calculate_gain('selu'): settles far below one")),
        (), "weights have variance 1 / fan_in and arguments are normal", "Klambauer et al. 2017, eq. 14",
    )  # fmt: skip


def _stock() -> Explanation:
    leaky = activation_profile("leaky_relu", negative_slope=math.sqrt(5))
    return Explanation(
        "sqrt(5), in PyTorch's default of a linear layer", "fan_in times variance", 1 / 3, "1 / (3 * E[f(z)^2])",
        (Term("3", 3, -1, "E f^2 of leaky relu with slope sqrt(5): (1 + 5) / 2"),
         Term("E[f(z)^2]", _m2(leaky), 0, "the same by quadrature"),
         Term("levels", 1 / 3 * _m2(activation_profile("relu")), 0, "times per relu layer, biases aside")),
        (), "it reproduces 1 / sqrt(fan_in) as a uniform bound; no activation asks for it",
        "PyTorch, kaiming_uniform_ with a = sqrt(5), after LeCun et al. 1998",
    )  # fmt: skip


def _truncated() -> Explanation:
    density = math.exp(-2) / math.sqrt(2 * math.pi)
    std = math.sqrt(1 - 4 * density / (2 * float(ndtr(2.0)) - 1))
    return Explanation(
        "0.8796, of a truncated normal", "standard deviation", std, "sqrt(1 - 4 phi(2) / (2 Phi(2) - 1))",
        (Term("std", std, 1, "of a unit normal cut at two standard deviations"),
         Term("correction", 1 / std, 0, "factor that gives the wanted deviation back")),
        (), "draws are cut at two standard deviations", "Johnson, Kotz & Balakrishnan 1994, section 10.1",
    )  # fmt: skip


def _logits() -> Explanation:
    d = 64
    return Explanation(
        "1/sqrt(d_k), the scale of attention logits", "scale at d_k = 64", d**-0.5, "1 / sqrt(d_k)",
        (Term("d_k", d, -0.5, "products of independent unit queries and keys that one logit sums"),),
        (), "queries and keys have unit second moment and are independent", "Vaswani et al. 2017, section 3.2.1",
    )  # fmt: skip


def _edge() -> Explanation:
    tanh = activation_profile("tanh")
    point = tanh.edge_of_chaos(sigma_b2=0.05)
    steep = tanh.moments(0.0, point.q).grad2
    return Explanation(
        "1.3270, tanh's critical weight scale at sigma_b^2 = 0.05", "sigma_w", point.sigma_w, "1 / sqrt(E[f'(x)^2])",
        (Term("E[f'(x)^2]", steep, -0.5, "mean squared slope at x ~ N(0, q*)"),
         Term("q*", point.q, 0, "level that these two variances hold"),
         Term("sigma_b^2", point.sigma_b2, 0, "variance of the biases")),
        (), "depth is large and nothing normalizes: chi_1 = 1 there", "Schoenholz et al. 2017, section 3",
    )  # fmt: skip


CONSTANTS: dict[str, tuple[Maker, tuple[str, ...], float | None]] = {
    "2/fan_in": (_he, ("he", "kaiming", "sqrt(2)", "2/n", "sqrt(6/fan_in)"), math.sqrt(2)),
    "1/fan_in": (_lecun, ("lecun", "1/n"), None),
    "2/(fan_in+fan_out)": (_xavier, ("xavier", "glorot", "sqrt(6/(fan_in+fan_out))"), None),
    "1.5335": (_gain("gelu", "rms"), ("gelu", "gelu rms"), 1.5335304412),
    "1.7009": (_gain("gelu", "std"), ("gelu std",), 1.7009262434),
    "1.6765": (_gain("silu", "rms"), ("silu", "swish"), 1.6765324703),
    "1.7872": (_gain("silu", "std"), ("silu std",), 1.7871872221),
    "1.2708": (_gain("elu", "std"), ("elu", "elu std", "1.2694"), 1.2708434179),
    "5/3": (_five_thirds, ("tanh", "1.6667"), 5 / 3),
    "1.7159": (_lecun_tanh, ("1.7159 tanh(2x/3)",), 1.7159),
    "1/sqrt(2L)": (_share, ("1/sqrt(n)", "residual", "gpt-2 branches"), None),
    "6/n": (_siren_hidden, ("siren", "sqrt(6/n)/omega"), None),
    "30": (_omega, ("omega", "omega_0", "omega=30"), 30.0),
    "0.02": (_gpt2, ("gpt2", "gpt-2", "bert"), 0.02),
    "1.702": (_quick_gelu, ("quick gelu", "quick_gelu"), 1.702),
    "selu": (_selu, ("1.0507", "1.6733", "3/4"), 1.0507009874),
    "sqrt(5)": (_stock, ("pytorch", "kaiming_uniform(a=sqrt(5))"), math.sqrt(5)),
    "0.8796": (_truncated, ("truncated normal", "0.87962566"), 0.8796256610),
    "1/sqrt(d_k)": (_logits, ("1/sqrt(d)", "attention"), None),
    "1.3270": (_edge, ("edge of chaos", "critical"), 1.3270096607),
}
"""By name: how it is computed, other names, and its value where it can be asked for by number."""


def explain(name: str | float) -> Explanation:
    """Why a well-known constant is what it is: formula, values by quadrature, source, and when it is right.

    Args:
        name: such as ``"2/fan_in"``, ``"he"``, ``"5/3"``, ``"1/sqrt(2L)"``; or the number itself, ``1.7009``.

    Returns:
        An :class:`Explanation`: ``print`` shows it; ``to_markdown``, ``to_dict`` and a notebook view exist.

    Raises:
        ConfigError: no constant of this name; the message lists the names.
    """
    if not isinstance(name, str):
        return _by_value(float(name))[0]()
    plain = _plain(name)
    for key, (make, aliases, _) in CONSTANTS.items():
        if plain in {_plain(n) for n in (key, *aliases)}:
            return make()
    if re.fullmatch(r"\d*\.\d+", plain):
        return _by_value(float(plain))[0]()
    raise ConfigError(
        "No constant of this name is known.", value=repr(name), remedy=near(name, list(CONSTANTS), limit=30)
    )


def _by_value(value: float) -> tuple[Maker, float]:
    """The constant nearest to a number, within one part in two thousand."""
    known = [(abs(v / value - 1) if value else math.inf, make) for make, _, v in CONSTANTS.values() if v is not None]
    distance, make = min(known, key=lambda pair: pair[0])
    if distance > 5e-4:
        listed = ", ".join(CONSTANTS)
        raise ConfigError("No known constant has this value.", value=value, remedy=f"Known: {listed}.")
    return make, distance


def _plain(name: str) -> str:
    return re.sub(r"[\s*]+", "", name.lower())
