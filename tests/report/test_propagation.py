"""Norms and angles: the measured curves against closed forms, the predicted ones against the measured."""

from __future__ import annotations

import json

import numpy as np
import pytest

import anyinit
from anyinit._core.pointwise import FUNCTIONS
from anyinit.errors import ConfigError


def test_the_relu_net_with_its_rms_gain_keeps_its_predicted_norm_and_angles_follow_the_arc_cosine_kernel():
    curve = anyinit.propagate("relu", gain="rms", width=64, depth=12).curves[0]
    assert np.allclose(curve.predicted_norm, np.sqrt(64 / 15))
    c = curve.predicted_cosine[:-1]
    angle = np.arccos(c)
    kernel = (np.sin(angle) + (np.pi - angle) * c) / np.pi  # Cho and Saul 2009, degree one
    assert np.allclose(curve.predicted_cosine[1:], kernel, atol=2e-4)


def test_the_gain_of_standard_deviation_lets_gelu_die_and_relu_explode_from_the_level_of_the_study():
    gelu, relu = anyinit.propagate(["gelu", "relu"], gain="std", width=200, depth=30, seed=1).curves
    assert gelu.norm[-1].max() < gelu.norm[0].min() / 20
    assert np.allclose(relu.predicted_norm[1:] / relu.predicted_norm[:-1], relu.gain / np.sqrt(2))
    for curve in (gelu, relu):
        inside = (curve.norm > curve.norm_band[..., 0]) & (curve.norm < curve.norm_band[..., 1])
        assert inside[1].all()
        assert abs(np.log(curve.norm[-1] / curve.predicted_norm[-1])).max() < 1.5


def test_the_band_of_the_norm_holds_nine_draws_in_ten():
    curves = [anyinit.propagate("relu", gain="rms", width=64, depth=10, pairs=1, seed=s).curves[0] for s in range(60)]
    inside = [c.norm_band[-1, 0, 0] < c.norm[-1, 0] < c.norm_band[-1, 0, 1] for c in curves]
    assert np.mean(inside) >= 0.8
    width = np.log(curves[0].norm_band[-1, 0, 1] / curves[0].norm_band[-1, 0, 0])
    spread = np.std([np.log(c.norm[-1, 0]) for c in curves])
    assert spread == pytest.approx(width / (2 * 1.645), rel=0.35)


def test_the_net_of_this_library_keeps_norms_and_angles_where_the_odd_part_is_linear():
    before = set(FUNCTIONS)
    curve = anyinit.propagate(lambda x: np.maximum(x, 0) + 0.3 * x, gain="anyinit", width=64, depth=12).curves[0]
    assert np.allclose(curve.cosine, curve.cosine[0], atol=1e-4)
    assert np.allclose(curve.norm[:-1], curve.norm[0], rtol=1e-3)
    assert np.allclose(curve.norm[:, 0], curve.predicted_norm[:, 0], rtol=0.05)
    assert np.allclose(curve.cosine[:, 0], curve.predicted_cosine[:, 0], atol=0.01)
    assert set(FUNCTIONS) == before


def test_results_are_data_text_and_escaped_html():
    found = anyinit.propagate({"<b>": "tanh"}, width=16, depth=3)
    assert "&lt;b&gt;" in found._repr_html_() and found._repr_html_().count("<b>") == 1
    assert "<b>" in repr(found)
    data = json.loads(json.dumps(found.to_dict()))
    assert np.shape(data["curves"][0]["norm"]) == (4, 3)


def test_the_picture_has_a_panel_with_two_labelled_ordinates_for_each_net():
    pytest.importorskip("matplotlib").use("Agg")
    figure, axes = anyinit.propagate(["tanh", "relu"], width=16, depth=3).plot()
    assert len(axes) == 2
    assert [a.get_ylabel() for a in figure.axes] == ["cosine", "cosine", "norm", "norm"]


@pytest.mark.parametrize("wrong", [{"width": 0}, {"depth": 0}, {"pairs": 0}, {"gain": "loud"}, {"gain": {"relu": 1.0}}])
def test_unusable_arguments_are_refused(wrong: dict[str, object]):
    with pytest.raises(ConfigError):
        anyinit.propagate("tanh", **wrong)


@pytest.mark.parametrize(("name", "gain"), [("tanh", 1.2), ("tanh", 2.0), ("gelu", "rms"), ("identity", 1.0)])
def test_the_band_of_the_angle_holds_nine_draws_in_ten_and_is_as_wide_as_they_spread(name: str, gain: object):
    curves = [anyinit.propagate(name, gain=gain, width=64, depth=6, pairs=4, seed=s).curves[0] for s in range(40)]
    inside = np.array([(c.cosine > c.cosine_band[..., 0]) & (c.cosine < c.cosine_band[..., 1]) for c in curves])
    assert 0.83 < inside[:, 1:].mean() < 0.97
    strayed = np.array([np.arctanh(c.cosine) - np.arctanh(c.predicted_cosine) for c in curves])[:, 1:]
    wide = np.array([np.diff(np.arctanh(c.cosine_band), axis=-1)[..., 0] for c in curves])[:, 1:] / (2 * 1.645)
    assert np.sqrt((strayed**2).mean()) == pytest.approx(np.sqrt((wide**2).mean()), rel=0.15)


def test_without_the_noise_of_former_layers_the_band_of_the_angle_would_be_too_narrow():
    curve = anyinit.propagate("identity", gain=1.0, width=64, depth=6, pairs=1).curves[0]
    wide = np.diff(np.arctanh(curve.cosine_band[:, 0]), axis=-1)[:, 0]
    assert wide[0] == pytest.approx(2 * 1.645 / np.sqrt(64), rel=1e-2)
    assert wide[-1] == pytest.approx(wide[0] * np.sqrt(7), rel=0.05)  # a linear net: each layer strays as much again


def test_a_net_without_a_theory_of_its_angles_has_no_band_of_them():
    curve = anyinit.propagate("relu", gain="anyinit", width=16, depth=3).curves[0]
    assert np.isnan(curve.cosine_band).all()
