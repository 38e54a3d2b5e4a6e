"""Pictures of one activation: their data against closed forms, their axes labelled, their words apart."""

from __future__ import annotations

import math

import numpy as np
import pytest

import anyinit
from anyinit import ConfigError
from figure_text import overlaps


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def test_the_moment_map_of_relu_is_the_diagonal_with_its_kink_at_zero():
    found = anyinit.activation_profile("relu").map_data()
    assert np.allclose(found["next_q"], found["q"])
    assert np.allclose(found["chi_1"], 1.0)
    assert found["kinks"] == [0.0] and found["operating"]["sigma_w2"] == pytest.approx(2.0)


def test_the_map_passes_the_operating_point():
    found = anyinit.activation_profile("gelu").map_data()
    at = found["operating"]
    assert np.interp(math.log(at["q"]), np.log(found["q"]), np.log(found["next_q"])) == pytest.approx(
        math.log(at["q"]), abs=2e-3
    )


def test_the_phases_of_relu_part_at_a_weight_variance_of_two_and_levels_follow_the_closed_form():
    found = anyinit.activation_profile("relu").phase_data()
    w, b = np.meshgrid(found["sigma_w2"], found["sigma_b2"])
    inside = (w < 1.9) & (b > 0.01)
    assert np.allclose(found["q"][inside], (b / (1 - w / 2))[inside], rtol=0.01)
    assert np.allclose(found["chi_1"][inside], (w / 2)[inside], rtol=1e-6)
    assert np.isinf(found["q"][(w > 2.05) & (b > 0.01)]).all()


def test_the_edge_of_tanh_is_that_of_the_profile_and_parts_order_from_chaos():
    profile = anyinit.activation_profile("tanh")
    found = profile.phase_data()
    point = profile.edge_of_chaos(sigma_b2=0.05)
    edge = found["edge"]
    assert np.interp(0.05, edge[:, 1], edge[:, 0]) == pytest.approx(point.sigma_w**2, rel=2e-3)
    row = int(np.abs(found["sigma_b2"] - 0.05).argmin())
    for column, w in enumerate(found["sigma_w2"]):
        if abs(w - point.sigma_w**2) > 0.1:
            assert (found["chi_1"][row, column] > 1) == (w > point.sigma_w**2)


@pytest.mark.parametrize("name", ["tanh", "relu", "gelu", "silu", "hardtanh", "sin", "sigmoid"])
def test_every_axis_is_labelled_and_no_word_overlaps_another(pyplot, name: str):
    profile = anyinit.activation_profile(name)
    for figure, axes in (profile.plot_map(), profile.plot_phase()):
        assert all(ax.get_xlabel() and ax.get_ylabel() for ax in axes)
        assert all(ax.has_data() for ax in axes)
        assert overlaps(figure) == []


def test_the_pictures_draw_on_axes_handed_in_and_refuse_too_many(pyplot):
    profile = anyinit.activation_profile("tanh")
    figure, axes = pyplot.subplots(1, 2)
    assert profile.plot_map(ax=axes[0])[0] is figure
    got, used = profile.plot_phase(ax=axes[1], point=(1.76, 0.05))
    assert got is figure and list(used) == [axes[1]]
    with pytest.raises(ConfigError, match="one axes"):
        profile.plot_phase(ax=axes)


def test_an_activation_that_no_gaussian_carries_everywhere_is_drawn_where_it_can_be(pyplot):
    figure, axes = anyinit.activation_profile(lambda x: np.exp(x * x / 8)).plot_phase()
    assert axes[0].get_xlabel() and figure is axes[0].figure
