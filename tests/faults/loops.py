"""Training loops that run and are wrong."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from faults.fault import fault
from healthy.epochs import quadrants
from healthy.program import STEPS, Program


@fault("DK501", of="gradients_cleared_by_hand", by="watch")
def gradients_never_cleared(program: Program) -> None:
    def train(self: Program) -> None:
        for _ in range(STEPS):
            self.loss(self.draw()).backward()
            self.optimizer.step()  # DK501

    program.train = train


@fault("DK501", of="llama_with_padded_rows", by="watch")
def gradients_cleared_between_backward_and_step_of_another_optimizer(program: Program) -> None:
    other = torch.optim.AdamW(program.model.lm_head.parameters(), lr=1e-3)

    def train(self: Program) -> None:
        for _ in range(STEPS):
            other.zero_grad()
            self.loss(self.draw()).backward()
            self.optimizer.step()  # DK501

    program.train = train


@fault("DK501", of="adversaries_checked_at_the_generators_step", by="watch")
def discriminator_never_cleared(program: Program) -> None:
    from healthy.several_optimizers import discriminator_loss, generator_loss

    def train(self: Program) -> None:
        second, first = self.optimizer
        for _ in range(STEPS):
            batch = self.draw()
            discriminator_loss(self.model, batch).backward()
            second.step()  # DK501
            first.zero_grad()
            generator_loss(self.model, batch).backward()
            first.step()

    program.train = train


@fault("DK502", of="gradients_cleared_by_hand", by="watch")
def gradients_cleared_before_the_step(program: Program) -> None:
    def train(self: Program) -> None:
        for _ in range(STEPS):
            self.loss(self.draw()).backward()
            self.optimizer.zero_grad()  # DK502
            self.optimizer.step()

    program.train = train


@fault("DK503", of="clipping_and_a_warmup_schedule", by="watch")
def schedule_before_the_optimizer(program: Program) -> None:
    def train(self: Program) -> None:
        schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1 / (1 + step))
        for _ in range(STEPS):
            self.optimizer.zero_grad()
            self.loss(self.draw()).backward()
            schedule.step()  # DK503
            self.optimizer.step()

    program.train = train


@fault("DK503", of="gradient_accumulation", by="watch")
def schedule_stepped_for_each_micro_batch(program: Program) -> None:
    def train(self: Program) -> None:
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, STEPS)
        for micro_step in range(4 * STEPS):
            (self.loss(self.draw()) / 4).backward()
            if micro_step % 4 == 3:
                self.optimizer.step()
                self.optimizer.zero_grad()
            schedule.step()  # DK503

    program.train = train


@fault("DK504", of="clipping_and_a_warmup_schedule", by="watch")
def clipped_before_backward(program: Program) -> None:
    def train(self: Program) -> None:
        for _ in range(STEPS):
            loss = self.loss(self.draw())
            self.optimizer.zero_grad()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # DK504
            loss.backward()
            self.optimizer.step()

    program.train = train


@fault("DK504", of="float16_autocast_with_a_gradient_scaler", by="watch")
def clipped_before_unscaling(program: Program) -> None:
    def train(self: Program) -> None:
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        for _ in range(STEPS):
            self.optimizer.zero_grad()
            scaler.scale(self.loss(self.draw())).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)  # DK504
            scaler.step(self.optimizer)
            scaler.update()

    program.train = train


@fault("DK505", of="validation_between_the_steps", by="watch", says="eval")
def never_back_to_training_mode(program: Program) -> None:
    def train(self: Program) -> None:
        for _ in range(STEPS):
            self.optimizer.zero_grad()
            self.loss(self.draw()).backward()
            self.optimizer.step()
            self.model.eval()
            with torch.no_grad():
                self.loss(self.draw())

    program.train = train


@fault("DK506", of="siglip_regresses_an_action")
def functional_dropout_that_knows_no_mode(program: Program) -> None:
    model = program.model

    def forward(pixel_values: Tensor) -> Tensor:
        patches = model.tower(pixel_values=pixel_values).last_hidden_state
        return model.head(F.dropout(patches.mean(1), 0.1))  # DK506

    model.forward = forward


@fault("DK506", of="chunk_decoder_returning_a_dict", says="drop")
def attention_that_drops_in_eval(program: Program) -> None:
    model, inner = program.model, program.model.decoder.forward

    def forward(queries: Tensor, memory: Tensor) -> Tensor:
        noisy = F.scaled_dot_product_attention(memory, memory, memory, dropout_p=0.2)  # DK506
        return inner(queries, noisy)

    model.decoder.forward = forward


@fault("DK601", of="gradients_cleared_by_hand", by="watch")
def losses_kept_with_their_graphs(program: Program) -> None:
    def train(self: Program) -> None:
        history: list[Tensor] = []
        for _ in range(2 * STEPS):
            self.optimizer.zero_grad()
            loss = self.loss(self.draw())
            loss.backward()
            self.optimizer.step()
            history.append(loss)  # DK601

    program.train = train


@fault("DK603", of="validation_between_the_steps", by="watch")
def validation_that_builds_graphs(program: Program) -> None:
    def train(self: Program) -> None:
        for _ in range(STEPS):
            self.model.train()
            self.optimizer.zero_grad()
            self.loss(self.draw()).backward()
            self.optimizer.step()
            self.model.eval()
            self.model(self.draw()["pixel_values"])[0].argmax(-1)  # DK603

    program.train = train


@fault("DK510", of="validation_between_the_steps", by="watch", says="running statistics")
def no_grad_taken_for_eval_mode(program: Program) -> None:
    def train(self: Program) -> None:
        for step in range(STEPS):
            self.optimizer.zero_grad()
            self.loss(self.draw()).backward()
            self.optimizer.step()
            if step % 4 == 3:
                with torch.no_grad():
                    losses = [float(self.loss(self.draw())) for _ in range(3)]
                assert len(losses) == 3

    program.train = train


@fault("DK511", of="cosine_for_each_epoch_with_the_best_weights_kept", by="watch", says="SGD was recreated")
def optimizer_made_in_each_epoch(program: Program) -> None:
    def train(self: Program) -> None:
        loader = DataLoader(TensorDataset(*quadrants(64)), batch_size=16, shuffle=True)
        for _ in range(4):
            optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)  # DK511
            for batch in loader:
                optimizer.zero_grad()
                self.loss(batch).backward()
                optimizer.step()

    program.train, program.optimizer = train, None


@fault(
    "DK605", of="cosine_for_each_epoch_with_the_best_weights_kept", by="watch", says="registered again in every step"
)
def hook_registered_in_each_step(program: Program) -> None:
    def train(self: Program) -> None:
        features = []
        for _ in range(8):
            last = list(self.model.modules())[-1]
            last.register_forward_hook(lambda _module, _args, output: features.append(output.detach()))  # DK605
            self.optimizer.zero_grad()
            self.loss(self.draw()).backward()
            self.optimizer.step()

    program.train = train


@fault("DK512", of="gradients_cleared_by_hand", by="watch", says="those of the last batch only")
def step_after_the_loop_over_the_batches(program: Program) -> None:
    def train(self: Program) -> None:
        for _epoch in range(3):
            for _ in range(4):
                self.optimizer.zero_grad()
                self.loss(self.draw()).backward()
            self.optimizer.step()  # DK512

    program.train = train


@fault("DK513", of="cosine_for_each_epoch_with_the_best_weights_kept", by="watch", says="restored nothing")
def best_weights_kept_without_a_copy(program: Program) -> None:
    def train(self: Program) -> None:
        held_out, best, weights = quadrants(32), -1.0, None
        for _ in range(4):
            for _ in range(4):
                self.optimizer.zero_grad()
                self.loss(self.draw()).backward()
                self.optimizer.step()
            with torch.no_grad():
                accuracy = (self.model(held_out[0]).argmax(1) == held_out[1]).float().mean().item()
            if best < 0:
                best, weights = accuracy, self.model.state_dict()  # DK513
        self.model.load_state_dict(weights)

    program.train = train
