"""Controllers that follow plans that agree, or of which nobody knows what they should execute."""

import torch
from torch import nn

import debugkit

HORIZON = 8


def _declared(controller, action=None, **expect):
    action = torch.randn(4, HORIZON, 3) if action is None else action
    return {
        "model": nn.Linear(2, 2),
        "batch": {"state": torch.randn(4, 2), "action": action},
        "declare": debugkit.Declare(controller=controller),
        "expect": expect,
    }


def _stateless(function, **expect):
    return _declared(lambda predict: lambda batch: function(predict(batch)), **expect)


def first_action_of_each_plan():
    return _stateless(lambda plan: plan[:, 0])


def half_of_each_plan_at_once():
    return _stateless(lambda plan: plan[:, : HORIZON // 2])


def one_action_as_an_array():
    return _stateless(lambda plan: plan[:, :1].double().numpy())


def queue_of_actions():
    def controller(predict):
        queue = []

        def act(batch):
            if not queue:
                queue.extend(predict(batch)[:, :3].unbind(1))
            return queue.pop(0)

        return act

    return _declared(controller)


def mean_of_all_plans():
    class Ensemble:
        def __init__(self, predict):
            self.predict, self.plans = predict, []
            self.weights = torch.exp(-0.1 * torch.arange(HORIZON))

        def __call__(self, batch):
            self.plans = [self.predict(batch), *self.plans][:HORIZON]
            weights = self.weights[: len(self.plans), None, None]
            now = torch.stack([plan[:, age] for age, plan in enumerate(self.plans)])
            return (weights * now).sum(0) / weights.sum()

    return _declared(Ensemble)


def moving_average_that_begins_with_the_first_plan():
    def controller(predict):
        kept = []

        def act(batch):
            now = predict(batch)[:, 0]
            kept[:] = [0.9 * kept[0] + 0.1 * now] if kept else [now]
            return kept[0]

        return act

    return _declared(controller)


def filter_from_rest():
    return _declared(_filter(1.0, 0.5))


def slow_filter_from_rest_in_other_units():
    return _declared(_filter(100.0, 0.02))


def limit_behind_a_filter():
    def controller(predict):
        act = _filter(1.0, 0.5)(predict)
        return lambda batch: act(batch).clamp(-0.1, 0.1)

    return _declared(controller)


def _filter(unit, share):
    def controller(predict):
        kept = [torch.zeros(4, 3)]

        def act(batch):
            kept[0] = (1 - share) * kept[0] + share * unit * predict(batch)[:, 0]
            return kept[0]

        return act

    return controller


def limits_units_and_a_gripper_that_is_open_or_closed():
    def convert(plan):
        now = plan[:, 0]
        return torch.cat([(100 * now[:, :2]).clamp(-5, 5), (now[:, 2:] > 0).float()], dim=-1)

    return _stateless(convert)


def positions_that_add_up_movements():
    def controller(predict):
        place = [torch.zeros(4, 3)]

        def act(batch):
            place[0] = place[0] + predict(batch)[:, 0]
            return place[0]

        return act

    return _declared(controller)


def stands_still_once_the_gripper_has_closed():
    def controller(predict):
        steps = [0]

        def act(batch):
            steps[0] += 1
            return predict(batch)[:, 0] * (steps[0] < 5)

        return act

    return _declared(controller)


def noise_on_every_action():
    return _stateless(lambda plan: plan[:, 0] + 0.1 * torch.randn(4, 3))


def plans_of_one_step():
    return _declared(lambda predict: lambda batch: predict(batch)[:, 0], action=torch.randn(4, 1, 3))


def dimension_that_is_zero():
    action = torch.randn(4, HORIZON, 3)
    action[..., 1] = 0
    return _declared(lambda predict: lambda batch: predict(batch)[:, 0] + torch.tensor([0.0, 1.0, 0.0]), action=action)


def plans_of_zeros():
    return _declared(lambda predict: predict, action=torch.zeros(4, HORIZON, 3), not_examined="all 0")


def target_of_one_action():
    return _declared(lambda predict: predict, action=torch.randn(4, 3), not_examined="no target action (B, H, A)")


def controller_that_raises():
    return _stateless(lambda plan: plan["action"], not_examined="The controller raised")


def controller_that_returns_another_shape():
    return _stateless(lambda plan: plan[0, 0], not_examined="returned the shape (3,)")


def controller_that_returns_nothing():
    return _stateless(lambda plan: None, not_examined="The controller raised")


def nothing_declared():
    program = _declared(None, not_examined="No controller was declared")
    del program["declare"]
    return program
