"""Actions in the wrong unit, from the wrong moment, or known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader

from debugkit import Declare
from faults.fault import fault
from healthy.policies import LoaderOf
from healthy.program import Program
from labs.vla.dataset import demonstrations


@fault("DK401", of="policy_that_regresses_chunks", module="action_statistics")
def mean_forgotten_on_the_way_back(program: Program) -> None:
    statistics = program.model.action_statistics
    statistics.unnormalize = lambda action: action * statistics.std


@fault("DK401", of="policy_with_flow_matching", module="action_statistics")
def deviation_squared_on_the_way_there(program: Program) -> None:
    statistics = program.model.action_statistics
    statistics.normalize = lambda action: (action - statistics.mean) / statistics.std.square()


@fault("DK402", of="policy_that_regresses_chunks", module="action_statistics", also=("DK201", "DK202"))
def joint_that_never_moved(program: Program) -> None:
    program.model.action_statistics.std[1] = 0.0


@fault("DK405", of="policy_that_says_action_tokens", module="head", says="-0.5 bins")
def left_edges_of_the_bins(program: Program) -> None:
    head = program.model.head
    head.decode = lambda tokens: tokens / head.bins * 2 - 1


@fault("DK404", of="policy_that_regresses_chunks", says="action")
def prediction_that_peeks_at_the_demonstration(program: Program) -> None:
    model, predict = program.model, program.model.predict
    model.predict = lambda batch: predict(batch) + 0.1 * batch["action"] if "action" in batch else predict(batch)


@fault("DK406", of="policy_that_regresses_chunks", says="episode")
def average_of_actions_kept_across_episodes(program: Program) -> None:
    model, predict = program.model, program.model.predict
    model.last = None

    def smoothed(batch: dict[str, Tensor]) -> Tensor:
        action = predict(batch)
        model.last = action if model.last is None else 0.5 * model.last + 0.5 * action
        return model.last

    model.predict = smoothed
    model.reset = lambda: None


@fault("DK408", of="policy_with_training_and_validation_loaders", says="`action[2]`")
def gripper_of_the_second_robot_turned_around(program: Program) -> None:
    first, second = demonstrations(96, seed=1), demonstrations(96, seed=2)
    action = second.action.copy()
    action[..., 2] *= -1
    both = ConcatDataset([LoaderOf(first), LoaderOf(replace(second, action=action))])
    program.loaders = {"train": DataLoader(both, 8, shuffle=True)}


@fault("DK409", of="policy_that_regresses_chunks", says="times the plan's")
def sum_of_plans_that_is_never_divided(program: Program) -> None:
    def controller(predict: Callable[[dict[str, Tensor]], Tensor]) -> Callable[[dict[str, Tensor]], Tensor]:
        plans: list[Tensor] = []

        def act(batch: dict[str, Tensor]) -> Tensor:  # DK409
            plans.insert(0, predict(batch))
            del plans[plans[0].shape[1] :]
            return torch.stack([plan[:, age] for age, plan in enumerate(plans)]).sum(0)

        return act

    program.declare = Declare(controller=controller)
