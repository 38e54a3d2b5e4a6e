from __future__ import annotations

import sys

import numpy as np
import pytest

from anyinit import BackendUnavailableError, ConfigError, Plan, Report
from anyinit.report import style
from figure_text import overlaps
from sample_plans import deep, dense, small


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def test_the_plot_shows_predicted_levels_measurements_and_gradients(pyplot):
    figure, axes = Report(small()).plot()
    assert len(axes) == 2
    assert axes[0].figure is figure
    lines = {line.get_label(): line.get_ydata() for line in axes[0].lines}
    assert lines["predicted"] == pytest.approx([1.0, 0.5])
    assert lines["measured"][0] == 1.1
    assert np.isnan(lines["measured"][1])
    assert axes[1].lines[0].get_ydata() == pytest.approx([0.01, 0.01])


def test_the_plot_draws_on_axes_handed_in(pyplot):
    figure, ax = pyplot.subplots()
    got, axes = Report(deep()).plot(ax=ax)
    assert got is figure
    assert list(axes) == [ax]
    assert len(ax.lines) == 1


def test_three_axes_are_refused(pyplot):
    _, axes = pyplot.subplots(3)
    with pytest.raises(ConfigError, match="1 to 2 axes"):
        Report(small()).plot(ax=axes)


def test_a_report_without_weights_has_nothing_to_plot():
    with pytest.raises(ConfigError, match="nothing to plot"):
        Report(Plan(0, ())).plot()


def test_without_matplotlib_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(BackendUnavailableError, match=r"anyinit\[plot\]"):
        Report(small()).plot()


def test_a_level_beyond_its_widened_band_is_ringed_and_one_inside_is_not(pyplot):
    weights = (dense("0.weight", 8, 4, measured=1.1), dense("2.weight", 8, 8, measured=9.0))
    _, axes = Report(Plan(0, weights)).plot()
    lines = {line.get_label(): list(line.get_xdata()) for line in axes[0].lines}
    assert lines["out of its band"] == [1]
    _, axes = Report(Plan(0, weights[:1])).plot()
    assert "out of its band" not in {line.get_label() for line in axes[0].lines}


def test_what_is_plotted_is_also_data():
    columns = Report(small()).plot_data()
    assert columns["name"] == ["0.weight", "2.weight"]
    assert columns["predicted"] == [1.0, 0.5]
    assert columns["low"] == pytest.approx([1 / 1.5, 0.5 / 1.5])
    assert columns["measured"][0] == 1.1 and np.isnan(columns["measured"][1])


def test_names_too_long_for_an_axis_lose_the_path_they_share_and_then_their_middle():
    start = "model.decoder.transformer.layers"
    names = [f"{start}.{i}.self_attention.output_projection.weight" for i in range(3)]
    shown, shared = style.distinct(names)
    assert shared == start
    assert len(set(shown)) == 3 and max(map(len, shown)) == style.NAME_WIDTH
    assert all(s.startswith(f"{i}.self") and s.endswith(".weight") for i, s in enumerate(shown))
    assert style.distinct(["0.weight", "2.weight"]) == (["0.weight", "2.weight"], "")


@pytest.mark.parametrize("count", [1, 2, 12, 200])
def test_no_text_of_the_plot_overlaps_other_text_or_leaves_the_figure(pyplot, count: int):
    long = "model.decoder.transformer.layers.{}.self_attention.output_projection.weight"
    figure, _ = Report(Plan(0, tuple(dense(long.format(i), 4, 4, measured=1.0) for i in range(count)))).plot()
    assert overlaps(figure) == []


def test_the_search_for_overlaps_sees_one(pyplot):
    figure, ax = pyplot.subplots()
    ax.text(0.5, 0.5, "one word")
    ax.text(0.5, 0.5, "another")
    ax.text(1.5, 0.5, "outside")
    assert len(overlaps(figure)) == 2


def test_the_picture_of_an_activation_marks_kinks_jumps_and_the_operating_point():
    import anyinit

    profile = anyinit.activation_profile(lambda x: np.where(x > 1, x, np.maximum(x, 0) * 0))
    figure, (function, levels) = profile.plot()
    drawn = {line.get_label(): line for line in (*function.get_lines(), *levels.get_lines())}
    star = profile.diagnostics.sigma_star
    assert star is not None
    assert drawn["jump"].get_xdata() == pytest.approx([1.0])
    point = drawn[f"operating point, chi {profile.chi:.3g}"]
    assert float(point.get_xdata()[0]) == pytest.approx(star**2)
    curve = levels.get_lines()[0]
    assert curve.get_ydata()[20] == pytest.approx(profile.moments(0, float(curve.get_xdata()[20])).m2)
    assert np.isnan(function.get_lines()[0].get_ydata()).any()
    assert all(a.get_xlabel() and a.get_ylabel() for a in (function, levels))
    assert not overlaps(figure)
    kinked = anyinit.activation_profile("hardtanh").plot()[1][0]
    assert {line.get_label(): list(line.get_xdata()) for line in kinked.get_lines()}["kink"] == [-1.0, 1.0]


def test_the_picture_of_an_activation_takes_two_axes():
    from matplotlib import pyplot

    import anyinit

    figure, axes = pyplot.subplots(2)
    assert anyinit.activation_profile("gelu").plot(ax=axes)[0] is figure
    with pytest.raises(anyinit.ConfigError, match="2 axes"):
        anyinit.activation_profile("gelu").plot(ax=axes[0])
