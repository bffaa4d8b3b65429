"""Controllers that execute something else once several plans are in their memory."""

import torch
from torch import nn

import debugkit

HORIZON = 8


def _declared(controller, **expect):
    return {
        "model": nn.Linear(2, 2),
        "batch": {"state": torch.randn(4, 2), "action": torch.randn(4, HORIZON, 3)},
        "declare": debugkit.Declare(controller=controller),
        "expect": {"severity": "error", **expect},
    }


def _later(sums):
    return torch.cat([sums[:, 1:], torch.zeros_like(sums[:, :1])], dim=1)


class Sum:
    """Adds up the plans with their weights, and divides by the weight of the newest one."""

    def __init__(self, predict):
        self.predict, self.weights = predict, torch.exp(-0.1 * torch.arange(HORIZON))[:, None]
        self.sums = torch.zeros(4, HORIZON, 3)

    def __call__(self, batch):  # DK409
        self.sums = _later(self.sums) + self.weights * self.predict(batch)
        return self.sums[:, :1] / self.weights[0]


def sum_that_is_not_divided():
    return _declared(Sum, message="`action[0]` is the plan's in step 1, and 5.79 times the plan's in step 64", count=1)


def sum_divided_by_the_number_of_plans():
    def controller(predict):
        plans = []

        def act(batch):  # DK409
            plans.append(predict(batch))
            recent = plans[: -HORIZON - 1 : -1]
            terms = [torch.exp(torch.tensor(-0.2 * age)) * plan[:, age] for age, plan in enumerate(recent)]
            return (torch.stack(terms).sum(0) / len(recent)).numpy()

        return act

    return _declared(controller, message="0.55 times the plan's")


def sum_that_forgets_a_little_at_a_time():
    def controller(predict):
        kept = [torch.zeros(4, 3)]

        def act(batch):  # DK409
            kept[0] = 0.5 * kept[0] + predict(batch)[:, 0]
            return kept[0]

        return act

    return _declared(controller, message="2 times the plan's")


def one_dimension_only():
    def controller(predict):
        steps = [0]

        def act(batch):  # DK409
            steps[0] = min(steps[0] + 1, 3)
            return predict(batch)[:, :2] * torch.tensor([1.0, 1.0, 1.0 / steps[0]])

        return act

    # Two steps are returned at once, so steps 1 and 2 are the plan's.
    return _declared(controller, message="`action[2]` is the plan's in step 1, and 0.333 times")


def module_that_adds_plans_up():
    class Controller(nn.Module):
        def __init__(self, predict):
            super().__init__()
            self.predict, self.plans = predict, []

        def forward(self, batch):  # DK409
            self.plans = [self.predict(batch), *self.plans][:HORIZON]
            return torch.stack([plan[:, age] for age, plan in enumerate(self.plans)]).sum(0)

    return _declared(Controller, message="8 times the plan's")


def other_rows_in_the_end():
    def controller(predict):
        steps = [0]

        def act(batch):  # DK409
            steps[0] += 1
            actions = predict(batch)[:, 0]
            return actions if steps[0] == 1 else torch.stack([actions[:, 0], actions[:, 2], actions[:, 1]], dim=-1)

        return act

    return _declared(controller, message="in step 64")
