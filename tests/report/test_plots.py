from __future__ import annotations

import sys

import numpy as np
import pytest

from anyinit import BackendUnavailableError, ConfigError, Plan, Report
from sample_plans import deep, small


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
    with pytest.raises(ConfigError, match="one or two axes"):
        Report(small()).plot(ax=axes)


def test_a_report_without_weights_has_nothing_to_plot():
    with pytest.raises(ConfigError, match="nothing to plot"):
        Report(Plan(0, ())).plot()


def test_without_matplotlib_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(BackendUnavailableError, match=r"anyinit\[plot\]"):
        Report(small()).plot()
