"""One seed, one network: Keras makes the weights that PyTorch made, on whichever backend is set."""

from __future__ import annotations

import pytest

pytest.importorskip("keras")

from golden import NETS, agree, fingerprint, golden, made

OTHERWISE = {
    "cnn": "padding is an operation of its own, whose zeros are counted",
    "block separate": "a functional model runs its branches in another order",
    "lstm": "the gates are drawn together",
}
CASES = [pytest.param(n, marks=[pytest.mark.xfail(reason=OTHERWISE[n])] if n in OTHERWISE else []) for n in NETS]


@pytest.mark.parametrize("name", CASES)
def test_the_seed_gives_the_golden_weights(name):
    agree(fingerprint(made("keras", name), name), golden(name), function=name != "cnn")
