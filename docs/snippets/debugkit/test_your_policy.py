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


def test_one_batch_can_be_learnt(assert_overfits):
    assert_overfits(policy, batch, learning_rate=1e-2)


def test_the_vision_tower_trains(assert_gradients_reach):
    assert_gradients_reach(policy, batch, "vision.*")


def test_nothing_else_is_wrong(assert_silent):
    assert_silent(policy, batch, ignore={"DK105": "the test above is about it"})
