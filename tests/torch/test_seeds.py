"""Seeds that come from PyTorch."""

from __future__ import annotations

import torch

from anyinit._options import resolve_seed


def test_generators_in_the_same_state_give_the_same_seed():
    first, origin = resolve_seed(torch.Generator().manual_seed(3))
    assert (first, origin) == resolve_seed(torch.Generator().manual_seed(3))
    assert origin == "drawn from a torch.Generator"
    assert first != resolve_seed(torch.Generator().manual_seed(4))[0]


def test_a_generator_advances_so_that_two_models_differ():
    generator = torch.Generator().manual_seed(3)
    assert resolve_seed(generator) != resolve_seed(generator)


def test_the_global_random_state_is_untouched():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    resolve_seed(torch.Generator().manual_seed(3))
    assert torch.equal(before, torch.get_rng_state())
