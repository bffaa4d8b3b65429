"""The three assertions of the pytest plugin, on a policy whose vision tower is cut off."""

import pytest
import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.head = nn.Linear(12, 32), nn.Linear(32, 2)

    def forward(self, pixels, action):
        seen = torch.tanh(self.vision(pixels)).detach()
        return {"loss": (self.head(seen) - action).square().mean()}


torch.manual_seed(0)
policy = Policy()
batch = {"pixels": torch.randn(4, 12), "action": torch.randn(4, 2)}


# --8<-- [start:tests]
def test_one_batch_can_be_learnt(assert_overfits):
    assert_overfits(policy, batch, learning_rate=1e-2)


def test_the_vision_tower_trains(assert_gradients_reach):
    assert_gradients_reach(policy, batch, "vision.*")


def test_nothing_else_is_wrong(assert_silent):
    assert_silent(policy, batch, ignore={"DK105": "the test above is about it"})


# --8<-- [end:tests]

if __name__ == "__main__":
    from debugkit.integrations.pytest_plugin import assert_gradients_reach, assert_overfits, assert_silent

    test_one_batch_can_be_learnt(assert_overfits)
    test_nothing_else_is_wrong(assert_silent)
    with pytest.raises(AssertionError) as failed:
        test_the_vision_tower_trains(assert_gradients_reach)
    print(failed.value)

assert policy.vision.weight.grad is None
