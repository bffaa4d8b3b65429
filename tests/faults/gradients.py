"""Parameters that should train and do not, or the other way round."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from debugkit import Declare
from faults.fault import fault
from healthy.program import STEPS, Program


@fault("DK101", of="siglip_regresses_an_action", says="tower")
def optimizer_of_the_head_alone(program: Program) -> None:
    program.optimizer = torch.optim.AdamW(program.model.head.parameters())


@fault("DK101", of="adversaries_checked_at_the_generators_step", says="generator")
def generator_in_no_optimizer(program: Program) -> None:
    program.optimizer = torch.optim.Adam(program.model.discriminator.parameters())


@fault("DK102", of="llama_with_padded_rows", module="lm_head")
def head_replaced_after_the_optimizer_was_built(program: Program) -> None:
    program.model.lm_head = nn.Linear(32, 96, bias=False)


@fault("DK102", of="policy_that_regresses_chunks", says="head", also=("DK101",))
def action_head_of_another_task_put_in_late(program: Program) -> None:
    program.model.head = program.model.build_head()


@fault("DK103", of="lora_on_a_frozen_llama", says="frozen", also=("DK101",))
def optimizer_of_the_frozen_body(program: Program) -> None:
    frozen = [parameter for parameter in program.model.parameters() if not parameter.requires_grad]
    program.optimizer = torch.optim.AdamW(frozen)


@fault("DK103", of="siglip_regresses_an_action", says="AdamW group 1 is empty", also=("DK101",))
def group_whose_pattern_matches_nothing(program: Program) -> None:
    model = program.model
    tower = [parameter for name, parameter in model.named_parameters() if name.startswith("vision.")]
    groups = [{"params": model.head.parameters()}, {"params": tower, "lr": 1e-5}]
    program.optimizer = torch.optim.AdamW(groups, lr=1e-3)


@fault("DK104", of="body_and_head_with_an_optimizer_each", says="2.weight")
def head_in_both_optimizers(program: Program) -> None:
    program.optimizer[0].add_param_group({"params": program.model[2].parameters()})


@fault("DK105", of="siglip_regresses_an_action", module="tower")
def features_detached(program: Program) -> None:
    model = program.model

    def forward(pixel_values: Tensor) -> Tensor:
        patches = model.tower(pixel_values=pixel_values).last_hidden_state.mean(1)
        return model.head(patches.detach())  # DK105

    model.forward = forward


@fault("DK105", of="frozen_siglip_under_no_grad", module="tower")
def tower_thawed_under_no_grad(program: Program) -> None:
    program.model.tower.requires_grad_(True)
    program.optimizer = torch.optim.AdamW(program.model.parameters(), lr=1e-3)


@fault("DK105", of="policy_that_regresses_chunks", module="projector")
def projected_patches_cut_off(program: Program) -> None:
    model, embed = program.model, program.model.embed_images

    def embed_images(pixel_values: Tensor) -> Tensor:
        return embed(pixel_values).data  # DK105

    model.embed_images = embed_images


@fault("DK105", of="learnt_first_state_and_layer_norm", module="gru")
def hidden_states_copied_through_a_list(program: Program) -> None:
    model = program.model

    def forward(x: Tensor) -> Tensor:
        hidden, _ = model.gru(model.norm(x), model.first.expand(1, len(x), 16).contiguous())
        return model.head(torch.tensor(hidden[:, -1].tolist(), device=x.device))  # DK105

    model.forward = forward


@fault("DK105", of="variational_autoencoder")
def reparametrisation_with_a_sample_that_has_no_gradient(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
        mean, log_variance = model.encode(batch).chunk(2, -1)
        latent = torch.distributions.Normal(mean, (log_variance / 2).exp()).sample()  # DK105
        return F.mse_loss(model.decode(latent), batch)

    program.loss_fn = loss_fn


@fault("DK106", of="siglip_regresses_an_action", module="wrist")
def camera_that_is_never_read(program: Program) -> None:
    program.model.wrist = nn.Conv2d(3, 32, 8, stride=8)
    program.optimizer = torch.optim.AdamW(program.model.parameters())


@fault("DK106", of="chunk_decoder_returning_a_dict", module="read_state", also=("DK306",))
def state_that_is_never_read(program: Program) -> None:
    model = program.model

    def forward(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        patches = model.read_image(batch["pixel_values"]).flatten(2).transpose(1, 2)
        return {"action": model.head(model.decoder(model.query.expand(len(patches), -1, -1), patches))}

    model.forward = forward


class _Square(torch.autograd.Function):
    """x², and says that its derivative is x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return x * gradient


@fault("DK108", of="one_block_used_three_times", says="_Square")
def backward_that_is_not_the_derivative(program: Program) -> None:
    head = program.model.head
    head.register_forward_hook(lambda _module, _inputs, output: _Square.apply(output))


@fault("DK112", of="frozen_batch_norm_in_eval", says="running_mean")
def frozen_batch_norm_left_in_training_mode(program: Program) -> None:
    program.model.train()


@fault("DK112", of="exponential_moving_average", says="average")
def moving_average_that_follows_inside_forward(program: Program) -> None:
    model = program.model

    def forward(x: Tensor) -> Tensor:
        with torch.no_grad():
            for slow, fast in zip(model.average.parameters(), model.body.parameters(), strict=True):
                slow.lerp_(fast + 1, 0.5)
        return model.body(x)

    model.forward = forward


@fault("DK113", of="siglip_regresses_an_action", says="tower")
def tower_that_was_declared_frozen(program: Program) -> None:
    program.declare = Declare(trainable=["head.*"])


@fault("DK113", of="lora_on_a_frozen_llama", says="lora_C")
def pattern_that_matches_nothing(program: Program) -> None:
    program.declare = Declare(trainable=["*lora_A*", "*lora_B*", "*lora_C*"])


@fault("DK116", of="accumulation_with_a_last_window_that_is_short", module="0", says="from 6 to 2 features")
def activations_that_a_config_switched_off(program: Program) -> None:
    for number in (1, 2, 4):
        program.model[number] = nn.Identity()


@fault("DK117", of="siglip_regresses_an_action", module="head.2")
def last_layer_frozen_by_a_pattern_for_the_body(program: Program) -> None:
    program.model.head[2].requires_grad_(False)


@fault("DK118", of="llama_with_padded_rows", by="watch", module="")
def checkpoint_of_a_wrapper_loaded_without_strict(program: Program) -> None:
    saved = {f"policy.{name}": value for name, value in program.model.state_dict().items()}

    def train(self: Program) -> None:
        self.model.load_state_dict(saved, strict=False)  # DK118
        for _ in range(STEPS):
            self.optimizer.zero_grad()
            self.loss(self.draw()).backward()
            self.optimizer.step()

    program.train = train


@fault("DK119", of="llama_with_padded_rows", by="watch")
def loss_rebuilt_so_that_backward_runs(program: Program) -> None:
    def train(self: Program) -> None:
        for _ in range(STEPS):
            self.optimizer.zero_grad()
            loss = torch.tensor(float(self.loss(self.draw())), requires_grad=True)
            loss.backward()  # DK119
            self.optimizer.step()

    program.train = train


@fault("DK122", of="convolutions_with_batch_norm")
def penalty_of_the_weights_with_the_wrong_exponent(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        error = F.cross_entropy(model(batch["pixel_values"])[0], batch["labels"])
        penalty = sum(p.square().sum() for p in model.parameters())  # DK122
        return error + 1e4 * penalty

    program.loss_fn = loss_fn


@fault("DK120", of="siglip_regresses_an_action", says="standard deviation is 1")
def weights_drawn_with_a_deviation_of_one(program: Program) -> None:
    torch.manual_seed(0)
    for parameter in program.model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter)


@fault("DK121", of="variational_autoencoder", module="encode.2", says="`detach`")
def divergence_of_detached_statistics(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
        again, *statistics = model(batch)
        mean, log_variance = (each.detach() for each in statistics)  # DK121
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1).mean()
        return F.mse_loss(again, batch) + 0.01 * divergence

    program.loss_fn = loss_fn
