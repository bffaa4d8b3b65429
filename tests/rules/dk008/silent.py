"""Modules whose effect is easy to overlook."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    MixtralConfig,
    MixtralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

_SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}


def _text(model):
    ids = torch.randint(0, 50, (2, 6))
    return {"model": model, "batch": {"input_ids": ids, "labels": ids}}


def llama():
    return _text(LlamaForCausalLM(LlamaConfig(**_SIZES, vocab_size=50)))


def mixture_of_experts():
    config = MixtralConfig(**_SIZES, vocab_size=50, num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=1)
    return _text(MixtralForCausalLM(config))


def bert():
    return _text(BertForMaskedLM(BertConfig(**_SIZES, vocab_size=50)))


def t5():
    config = T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0)
    return _text(T5ForConditionalGeneration(config))


class KeysAndValues(nn.Module):
    """As in pi0: the prefix runs through the language model only to fill its cache."""

    def __init__(self, frozen):
        super().__init__()
        self.language_model = LlamaModel(LlamaConfig(**_SIZES, vocab_size=50)).requires_grad_(not frozen)
        self.expert = LlamaModel(LlamaConfig(**_SIZES, vocab_size=50))
        self.head = nn.Linear(32, 2)
        self.frozen = frozen

    def forward(self, input_ids, noisy_action):
        with torch.set_grad_enabled(not self.frozen):
            cache = self.language_model(input_ids=input_ids, use_cache=True).past_key_values
        hidden = self.expert(inputs_embeds=noisy_action, past_key_values=cache).last_hidden_state
        return {"loss": self.head(hidden).square().mean()}


def prefix_for_its_keys_and_values():
    batch = {"input_ids": torch.randint(0, 50, (2, 6)), "noisy_action": torch.randn(2, 3, 32)}
    return {"model": KeysAndValues(frozen=False), "batch": batch}


def frozen_prefix_for_its_keys_and_values():
    batch = {"input_ids": torch.randint(0, 50, (2, 6)), "noisy_action": torch.randn(2, 3, 32)}
    return {"model": KeysAndValues(frozen=True), "batch": batch}


class Adapted(nn.Module):
    """LoRA with B = 0, and a branch behind a gate that is still zero."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(6, 8).requires_grad_(False)
        self.lora_a, self.lora_b = nn.Linear(6, 2, bias=False), nn.Linear(2, 8, bias=False)
        self.branch, self.gate = nn.Linear(6, 8), nn.Parameter(torch.zeros(()))
        self.dropout = nn.Dropout(0.1)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x):
        hidden = self.base(x) + self.lora_b(self.lora_a(self.dropout(x))) + self.gate.tanh() * self.branch(x)
        return {"loss": hidden.square().mean()}


def lora_and_a_shut_gate():
    return {"model": Adapted(), "batch": {"x": torch.randn(4, 6)}}


class DenseExperts(nn.Module):
    """Every expert runs, and the router gives one of them all the weight."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(6, 6) for _ in range(4)])

    def forward(self, x):
        weights = F.one_hot(torch.zeros(len(x), dtype=torch.long), 4).to(x)
        outputs = torch.stack([expert(x) for expert in self.experts], dim=1)
        return {"loss": (weights[..., None] * outputs).sum(1).square().mean()}


def experts_without_weight():
    return {"model": DenseExperts(), "batch": {"x": torch.randn(4, 6)}}


class Distilled(nn.Module):
    """A frozen teacher, an auxiliary head for training only, and a head that is returned and not trained."""

    def __init__(self):
        super().__init__()
        self.student, self.auxiliary, self.value = nn.Linear(6, 8), nn.Linear(8, 2), nn.Linear(8, 1)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    def forward(self, x):
        hidden = self.student(x)
        with torch.no_grad():
            wanted = self.teacher(x)
        loss = F.mse_loss(hidden, wanted)
        if self.training:
            loss = loss + self.auxiliary(hidden).square().mean()
        return {"loss": loss, "value": self.value(hidden.detach())}


def teacher_and_heads():
    return {"model": Distilled(), "batch": {"x": torch.randn(4, 6)}}


def teacher_and_heads_in_eval_mode():
    return {"model": Distilled().eval(), "batch": {"x": torch.randn(4, 6)}}


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first, self.block = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 6))
        self.reentrant = reentrant

    def forward(self, x):
        hidden = checkpoint(self.block, self.first(x), use_reentrant=self.reentrant)
        return {"loss": hidden.square().mean()}


def activation_checkpointing():
    return {"model": Checkpointed(False), "batch": {"x": torch.randn(4, 6)}}


def reentrant_checkpointing():
    return {"model": Checkpointed(True), "batch": {"x": torch.randn(4, 6)}}


def last_state_of_a_recurrent_layer():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(4, 8, num_layers=2, dropout=0.1), nn.Linear(8, 1)

        def forward(self, x):
            return {"loss": self.head(self.rnn(x)[1][0][-1]).square().mean()}

    return {"model": Recurrent(), "batch": {"x": torch.randn(5, 3, 4)}}


def branch_below_the_noise_of_the_step():
    """The branch is read through `argmin` alone, and the step draws from a generator that is seeded again each time."""

    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.chooser, self.body = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x):
            fresh = torch.Generator()
            fresh.seed()
            noisy = x + torch.randn(x.shape, generator=fresh)
            return {"loss": self.body(noisy).gather(1, self.chooser(x).argmin(1, keepdim=True)).square().mean()}

    return {
        "model": Quantised(),
        "batch": {"x": torch.randn(4, 6)},
        "expect": {"not_examined": "Two equal passes differ"},
    }


class WithTeacher(nn.Module):
    """The consistency with an averaged copy has weight 0 in the first epoch."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = nn.Linear(6, 3), nn.Linear(6, 3).requires_grad_(False)
        self.weight = 0.0

    def forward(self, x):
        guess, goal = self.student(x), self.teacher(x)
        return {"loss": guess.square().mean() + self.weight * (guess - goal).square().mean()}


def averaged_teacher_whose_weight_ramps_up_from_zero():
    return {"model": WithTeacher(), "batch": {"x": torch.randn(4, 6)}}


def momentum_encoder_that_fills_a_queue():
    class Contrast(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.momentum = nn.Linear(6, 3), nn.Linear(6, 3).requires_grad_(False)
            self.register_buffer("queue", torch.randn(8, 3))
            self.start = 0

        def forward(self, x):
            loss = (self.encoder(x) @ self.queue.clone().T).logsumexp(-1).mean()
            with torch.no_grad():
                self.queue[self.start : self.start + len(x)] = self.momentum(x)
            self.start = (self.start + len(x)) % 8
            return {"loss": loss}

    return {"model": Contrast(), "batch": {"x": torch.randn(4, 6)}}


def auxiliary_head_whose_weight_is_still_zero():
    class Scheduled(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.auxiliary, self.step = nn.Linear(6, 6), nn.Linear(6, 3), 0

        def forward(self, x):
            hidden = self.body(x)
            return {"loss": hidden.square().mean() + 0.1 * self.step * self.auxiliary(hidden).square().mean()}

    return {"model": Scheduled(), "batch": {"x": torch.randn(4, 6)}}


class FrozenTower(nn.Module):
    """A tower in half precision under `no_grad`, whose features change the head's result by about 1 %."""

    def __init__(self, share):
        super().__init__()
        self.tower = nn.Linear(6, 8).to(torch.bfloat16).requires_grad_(False)
        self.head = nn.Linear(8, 2)
        self.share = share

    def forward(self, image, state):
        with torch.no_grad():
            features = self.tower(image.to(torch.bfloat16)).float()
        return {"loss": self.head(state + self.share * features).square().mean()}


def frozen_tower_in_half_precision_with_a_small_effect():
    return {"model": FrozenTower(0.002), "batch": {"image": torch.randn(4, 6), "state": 1 + torch.rand(4, 8)}}


def frozen_tower_of_a_loss_that_is_not_finite():
    state = torch.rand(4, 8)
    state[0, 0] = torch.nan
    return {
        "model": FrozenTower(1.0),
        "batch": {"image": torch.randn(4, 6), "state": state},
        "expect": {"not_examined": "The loss is not finite"},
    }
