"""Random draws that are healthy in eval mode."""

import warnings

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, ViTMAEConfig, ViTMAEForPreTraining


def _loss(model, state):
    return model(state).square().mean()


def dropout_modules():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.RReLU(), nn.GRU(8, 8, 2, dropout=0.5), nn.Identity())
    return {
        "model": model,
        "batch": torch.randn(6, 4),
        "loss_fn": lambda model, state: model(state)[0].square().mean(),
    }


class FlowMatching(nn.Module):
    """Draws noise, time and a mask that selects, in every pass."""

    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 2))

    def forward(self, batch):
        noise, time = torch.randn_like(batch["action"]), torch.rand(len(batch["action"]), 1)
        mixed = time * batch["action"] + (1 - time) * noise
        state = torch.where(torch.rand(len(mixed), 1) < 0.1, torch.zeros(2), batch["state"])
        velocity = self.head(torch.cat([mixed, time, state], 1))
        return (velocity - (batch["action"] - noise)).square().mean()


def flow_matching():
    batch = {"action": torch.randn(6, 2), "state": torch.randn(6, 2)}
    return {"model": FlowMatching(), "batch": batch, "loss_fn": lambda model, batch: model(batch)}


def language_model_with_dropout_everywhere():
    config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=30, n_positions=16)
    ids = torch.randint(30, (3, 8))
    return {"model": GPT2LMHeadModel(config), "batch": {"input_ids": ids, "labels": ids}}


def low_rank_adapters_with_dropout():
    config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=30, n_positions=16)
    adapters = LoraConfig(r=2, target_modules=["c_attn"], lora_dropout=0.5, fan_in_fan_out=True)
    ids = torch.randint(30, (3, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft reads a deprecated attribute of transformers
        model = get_peft_model(GPT2LMHeadModel(config), adapters)
    return {"model": model, "batch": {"input_ids": ids, "labels": ids}}


def masked_autoencoder():
    config = ViTMAEConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        decoder_hidden_size=16,
        decoder_num_hidden_layers=1,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=16,
        image_size=8,
        patch_size=2,
    )
    return {"model": ViTMAEForPreTraining(config), "batch": {"pixel_values": torch.randn(2, 3, 8, 8)}}


class Variational(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(4, 6), nn.Linear(3, 4)

    def forward(self, state):
        mean, log_var = self.encode(state).chunk(2, 1)
        return self.decode(mean + torch.randn_like(mean) * (0.5 * log_var).exp())


def variational_sample():
    return {"model": Variational(), "batch": torch.randn(6, 4), "loss_fn": _loss}


class Sampler(nn.Module):
    """Binary latents are sampled and used as indices."""

    def __init__(self):
        super().__init__()
        self.rate, self.codes = nn.Linear(4, 3), nn.Embedding(2, 5)

    def forward(self, state):
        return self.codes(torch.bernoulli(self.rate(state).sigmoid()).long())


def binary_latents():
    return {"model": Sampler(), "batch": torch.randn(6, 4), "loss_fn": _loss}


def teacher_outside_of_the_model_in_training_mode():
    """A mean teacher has dropout as its student has: the loss function holds it, and eval mode is for both."""
    student = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    teacher = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)).requires_grad_(False)

    def consistency(model, state):
        return (model(state) - teacher(state)).square().mean()

    return {"model": student, "batch": torch.randn(6, 4), "loss_fn": consistency}


def _validated(drop, *, evaluate=lambda model: model.eval(), **expect):
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head, self.drop = nn.Linear(4, 8), nn.Linear(8, 2), drop

        def forward(self, state):
            return self.head(self.drop(torch.relu(self.body(state))))

    def loop(model, optimizer):
        for _ in range(3):
            model.train()
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.randn(6, 4)).square().mean().backward()
                optimizer.step()
            evaluate(model)
            with torch.no_grad():
                model(torch.randn(6, 4))

    model = Policy()
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "loop": loop, "expect": expect}


def dropout_modules_of_a_validated_loop():
    return _validated(nn.Dropout(0.5))


class MonteCarlo(nn.Dropout):
    def forward(self, hidden):
        return torch.nn.functional.dropout(hidden, self.p, training=True)


def monte_carlo_dropout_of_a_loop():
    """The uncertainty of a prediction: the line itself asks for dropout."""
    return _validated(MonteCarlo(0.5))


def dropout_modules_put_back_into_training_mode():
    """Monte Carlo dropout again: the mode of the dropout modules asks for it."""

    def evaluate(model):
        model.eval()
        model.drop.train()

    return _validated(
        nn.Dropout(0.5), evaluate=evaluate, not_examined="The loop made no pass in eval mode without gradients."
    )
