"""Shapes, types and devices that do not fit."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults.fault import fault
from healthy.program import Program


@fault("DK001", of="siglip_regresses_an_action", module="head.0")
def head_for_another_width(program: Program) -> None:
    program.model.head[0] = nn.Linear(48, 32)


@fault("DK001", of="convolutions_with_batch_norm", module="body.0")
def first_convolution_for_grey_pictures(program: Program) -> None:
    program.model.body[0] = nn.Conv2d(1, 16, 3, stride=2, bias=False)


@fault("DK001", of="chunk_decoder_returning_a_dict", module="read_state")
def state_with_the_gripper_missing(program: Program) -> None:
    program.batch["state"] = program.batch["state"][:, :2]


@fault("DK002", of="siglip_regresses_an_action")
def one_number_against_none(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        action = model(batch["pixel_values"])[:, :1]  # (B, 1)
        return F.mse_loss(action, batch["action"][:, 0])  # DK002

    program.loss_fn = loss_fn


@fault("DK002", of="deep_q_learning_with_a_target_network")
def values_against_flat_rewards(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        value = model.online(batch["state"]).gather(1, batch["choice"])  # (B, 1)
        with torch.no_grad():
            future = model.target(batch["next_state"]).amax(1)  # (B,)
        return (value - (batch["reward"][:, 0] + 0.9 * future)).square().mean()  # DK002

    program.loss_fn = loss_fn


@fault("DK002", of="chunk_decoder_returning_a_dict")
def chunk_against_its_first_step(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        error = F.l1_loss(model(batch)["action"], batch["action"][:, :1], reduction="none")  # DK002
        valid = ~batch["action_is_pad"]
        return (error.mean(-1) * valid).sum() / valid.sum()

    program.loss_fn = loss_fn


@fault("DK003", of="denoising_diffusion")
def noise_drawn_on_the_cpu(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        action = batch["action"]
        step = torch.randint(10, (len(action),))  # DK003
        return F.mse_loss(model(action, step), action)

    program.loss_fn = loss_fn


@fault("DK003", of="in_batch_negatives_with_a_learnt_temperature")
def labels_of_a_contrast_made_on_the_cpu(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        logits = model.log_scale.exp() * model.image(batch[0]) @ model.text(batch[1]).T
        own = torch.arange(len(logits))  # DK003
        return F.cross_entropy(logits, own)

    program.loss_fn = loss_fn


@fault("DK005", of="mask_of_minus_infinity", module="", says="mask")
def mask_that_is_no_buffer(program: Program) -> None:
    mask = program.model.mask
    del program.model.mask
    program.model.mask = mask


@fault("DK004", of="siglip_regresses_an_action", module="head.0")
def head_in_half_precision(program: Program) -> None:
    program.model.head.bfloat16()


@fault("DK004", of="gru_whose_state_is_carried_on", module="gru")
def observations_in_double_precision(program: Program) -> None:
    x, y = program.batch
    program.batch = (x.double(), y)


@fault("DK006", of="llama_with_padded_rows", module="model.embed_tokens")
def token_beyond_the_vocabulary(program: Program) -> None:
    program.batch["input_ids"][0, 3] = 96
    program.batch["labels"][0, 3] = -100


@fault("DK006", of="convolutions_with_batch_norm", says="4")
def class_beyond_the_head(program: Program) -> None:
    program.batch["labels"][0] = 4


@fault("DK009", of="siglip_regresses_an_action", says="`clamp`")
def target_that_is_not_clipped(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        target = batch["action"]
        target.clamp(-1, 1)  # DK009
        return F.mse_loss(model(batch["pixel_values"]), target)

    program.loss_fn = loss_fn
