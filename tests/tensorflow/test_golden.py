"""One seed, one network: modules of raw TensorFlow variables get the weights that PyTorch made."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow")

from golden import NETS, agree, fingerprint, golden, made  # noqa: E402


@pytest.mark.parametrize("name", NETS)
def test_the_seed_gives_the_golden_weights(name):
    agree(fingerprint(made("module", name), name), golden(name), function=name != "cnn")
