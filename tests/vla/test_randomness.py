import pytest
import torch

from labs.vla.randomness import private_randomness


def test_the_block_is_seeded_and_the_caller_goes_on_as_before():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    draws = []
    for _ in range(2):
        with private_randomness(9):
            draws.append(torch.rand(1).item())
    assert draws[0] == draws[1]
    assert torch.equal(torch.rand(2), expected)


def test_the_callers_state_comes_back_after_an_error():
    before = torch.get_rng_state()

    def draw_and_fail():
        with private_randomness(9):
            torch.rand(1)
            raise KeyError

    with pytest.raises(KeyError):
        draw_and_fail()
    assert torch.equal(torch.get_rng_state(), before)
