"""One seed, one network: modules of raw TensorFlow variables get the weights that PyTorch made."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow")

from golden import NETS, agree, fingerprint, golden, made

CASES = [
    pytest.param(n, marks=[pytest.mark.xfail(reason="its one bias for both sums is counted otherwise")] * (n == "lstm"))
    for n in NETS
]


@pytest.mark.parametrize("name", CASES)
def test_the_seed_gives_the_golden_weights(name):
    agree(fingerprint(made("module", name), name), golden(name), function=name != "cnn")
