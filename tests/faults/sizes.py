"""Values, gradients and updates that are too small, too large, or nothing at all."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from faults.fault import fault
from healthy.program import STEPS, Program


@fault("DK107", of="llama_with_padded_rows", module="model.layers", says="model.layers.1")
def hidden_states_stacked_and_the_wrong_one_taken(program: Program) -> None:
    body = program.model.model
    states: list[Tensor] = []
    for layer in body.layers:
        layer.register_forward_hook(lambda _module, _inputs, output: states.append(output))

    def first(_norm: nn.Module, _inputs: tuple[Tensor]) -> tuple[Tensor]:
        stacked = torch.stack(states[-2:])
        states.clear()
        return (stacked[0],)

    body.norm.register_forward_pre_hook(first)


@fault("DK109", of="siglip_regresses_an_action", module="head.0")
def head_of_ten_sigmoid_layers(program: Program) -> None:
    width = program.model.tower.config.hidden_size
    layers = [layer for _ in range(10) for layer in (nn.Linear(width, width), nn.Sigmoid())]
    program.model.head = nn.Sequential(*layers, nn.Linear(width, 7))
    program.optimizer = torch.optim.AdamW(program.model.parameters(), lr=1e-3)


@fault("DK110", of="siglip_regresses_an_action", says="grows")
def head_initialised_with_unit_variance(program: Program) -> None:
    width = program.model.tower.config.hidden_size
    layers = [layer for _ in range(12) for layer in (nn.Linear(width, width), nn.ReLU())]
    for layer in layers[::2]:
        nn.init.normal_(layer.weight)
    program.model.head = nn.Sequential(*layers, nn.Linear(width, 7))
    program.optimizer = torch.optim.AdamW(program.model.parameters(), lr=1e-3)


@fault("DK111", of="convolutions_with_batch_norm", module="body.2")
def batch_norm_shifted_far_below_zero(program: Program) -> None:
    nn.init.constant_(program.model.body[1].bias, -20.0)


@fault("DK203", of="float16_autocast_with_a_gradient_scaler", says="float16")
def activations_near_the_end_of_float16(program: Program) -> None:
    with torch.no_grad():
        program.model[0].weight.mul_(5e3)
        program.model[3].weight.mul_(2e-4)  # what comes out is as it was


@fault("DK205", of="gradients_cleared_by_hand", by="watch", says="jumped")
def one_batch_in_millimetres(program: Program) -> None:
    def train(self: Program) -> None:
        for step in range(3 * STEPS):
            loss = self.loss(self.draw()) * (1e4 if step == 2 * STEPS else 1.0)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    program.train = train


@fault("DK206", of="gradients_cleared_by_hand", by="watch", says="too small")
def rate_of_adam_given_to_sgd_and_a_loss_averaged_twice(program: Program) -> None:
    program.optimizer = torch.optim.SGD(program.model.parameters(), lr=1e-6)

    def train(self: Program) -> None:
        for _ in range(4 * STEPS):
            self.optimizer.zero_grad()
            (self.loss(self.draw()) / 64).backward()
            self.optimizer.step()

    program.train = train


@fault("DK207", of="siglip_regresses_an_action", by="watch", says="times its initial value", also=("DK206",))
def learning_rate_of_one(program: Program) -> None:
    program.optimizer = torch.optim.Adam(program.model.parameters(), lr=1.0)


@fault("DK208", of="bfloat16_autocast", says="autocast is disabled in")
def autocast_left_before_the_forward(program: Program) -> None:
    inner = program.loss_fn

    def loss_fn(model: nn.Module, batch: object) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            loss = model(batch["x"] if isinstance(batch, dict) else batch).square().mean()
        with torch.autocast("cpu", dtype=torch.bfloat16):  # DK208
            return loss * 1.0

    assert inner is not None
    program.loss_fn = loss_fn


@fault("DK509", of="policy_that_regresses_chunks", says="is 0")
def learning_rate_of_nothing(program: Program) -> None:
    program.optimizer = torch.optim.AdamW(program.model.parameters(), lr=0.0)
