"""One seed, one network: Keras makes the weights that PyTorch made, on whichever backend is set."""

from __future__ import annotations

import pytest

pytest.importorskip("keras")

from golden import NETS, agree, fingerprint, golden, made  # noqa: E402


@pytest.mark.parametrize("name", NETS)
def test_the_seed_gives_the_golden_weights(name):
    agree(fingerprint(made("keras", name), name), golden(name), function=name != "cnn")
