"""Numbers that are none, too large, or lost."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.fault import fault
from healthy.program import Program


@fault("DK201", of="mask_of_minus_infinity")
def row_with_nothing_to_attend_to(program: Program) -> None:
    model = program.model
    model.mask.fill_(float("-inf")).triu_(0)

    def forward(ids: Tensor) -> Tensor:
        hidden = model.words(ids) + model.position
        query, key, value = model.project(hidden).chunk(3, -1)
        scores = query @ key.transpose(1, 2) / 4
        scores = scores.masked_fill(model.mask < 0, float("-inf"))
        scores[:, 0] = float("-inf")
        return model.say(hidden + scores.softmax(-1) @ value)  # DK201

    model.forward = forward


@fault("DK201", of="variational_autoencoder")
def logarithm_of_what_may_be_negative(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
        again, mean, _ = model(batch)
        return F.mse_loss(again, batch) - mean.log().mean()  # DK201

    program.loss_fn = loss_fn


@fault("DK201", of="gradient_accumulation", by="watch", module="model.norm")
def weight_that_became_infinite(program: Program) -> None:
    with torch.no_grad():
        program.model.model.norm.weight[3] = float("inf")


@fault("DK202", of="fitting_pairwise_distances")
def root_of_a_distance_that_is_zero(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        place = model(batch["x"])
        distance = (place[:, None] - place[None]).square().sum(-1).sqrt()  # DK202
        return distance.mean()

    program.loss_fn = loss_fn


@fault("DK202", of="siglip_regresses_an_action")
def division_that_where_was_to_prevent(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        error = model(batch["pixel_values"]) - batch["action"]
        return torch.where(error > 0, error.sqrt(), -error).mean()  # DK202

    program.loss_fn = loss_fn


@fault("DK313", of="gru_whose_state_is_carried_on", says="NaN")
def reading_of_a_broken_sensor(program: Program) -> None:
    program.batch[0][1, 2, 0] = float("nan")
