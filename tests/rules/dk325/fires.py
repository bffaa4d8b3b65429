"""Causal models that are trained to predict the token that they read."""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 24


class Decoder(nn.Module):
    """Next-token logits (B, T, V)."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(TOKENS, 16), nn.Embedding(32, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, TOKENS)

    def forward(self, ids):
        length = ids.shape[1]
        x = self.words(ids) + self.places(torch.arange(length))
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]
        return self.head(self.norm(x))


class Recurrent(nn.Module):
    """Next-token logits, time first."""

    def __init__(self):
        super().__init__()
        self.words, self.mix, self.head = nn.Embedding(TOKENS, 16), nn.LSTM(16, 16), nn.Linear(16, TOKENS)

    def forward(self, ids):
        return self.head(self.mix(self.words(ids))[0])


def _text(*shape):
    return torch.randint(1, TOKENS, shape)


def _window(x, y):
    def loss_fn(model, batch):
        logits = model(batch["x"])
        return F.cross_entropy(logits.view(-1, TOKENS), batch["y"].view(-1))  # DK325

    return {"model": Decoder(), "batch": {"x": x, "y": y}, "loss_fn": loss_fn}


def the_same_window_twice():
    text = _text(6, 12)
    expect = {"module": "words", "severity": "warning", "message": "All 72 targets", "count": 1}
    return _window(text, text.clone()) | {"expect": expect}


def declared_causal():
    import debugkit

    text = _text(6, 12)
    return _window(text, text.clone()) | {"declare": debugkit.Declare(causal=True), "expect": {"severity": "error"}}


def logits_without_the_first_instead_of_the_last():
    def loss_fn(model, batch):
        logits, ids = model(batch)[:, 1:], batch[:, 1:]
        return F.cross_entropy(logits.transpose(1, 2), ids)  # DK325

    return {"model": Decoder(), "batch": _text(6, 12), "loss_fn": loss_fn}


def both_without_the_last():
    """The first window of nanoGPT's two, used for both."""

    def loss_fn(model, batch):
        logits, ids = model(batch)[:, :-1], batch[:, :-1]
        return F.cross_entropy(logits.transpose(1, 2), ids)  # DK325

    return {"model": Decoder(), "batch": _text(6, 12), "loss_fn": loss_fn}


def padding_ignored_in_a_recurrent_network_with_time_first():
    ids = _text(12, 6)
    ids[8:, ::2] = 0

    def loss_fn(model, ids):
        return F.cross_entropy(model(ids).flatten(0, 1), ids.flatten(), ignore_index=0)  # DK325

    return {"model": Recurrent(), "batch": ids, "loss_fn": loss_fn}


def masked_mean_written_by_hand():
    ids = _text(6, 12)
    mask = torch.ones(6, 12)
    mask[2:, 9:] = 0

    def loss_fn(model, batch):
        log_probs = model(batch["ids"]).log_softmax(-1)
        own = log_probs.gather(-1, batch["ids"][..., None])[..., 0]  # DK325
        return -(own * batch["mask"]).sum() / batch["mask"].sum()

    return {"model": Decoder(), "batch": {"ids": ids, "mask": mask}, "loss_fn": loss_fn}


def hugging_face_model_with_a_loss_of_the_users():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)

    def loss_fn(model, batch):
        logits = model(input_ids=batch["input_ids"]).logits
        return F.cross_entropy(logits.view(-1, 64), batch["labels"].view(-1))  # DK325

    ids = torch.randint(3, 60, (4, 10))
    batch = {"input_ids": ids, "labels": ids.clone()}
    return {"model": GPT2LMHeadModel(config).train(), "batch": batch, "loss_fn": loss_fn}


def decoder_input_and_labels_are_the_same_slice():
    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.source, self.target = nn.Embedding(TOKENS, 16), nn.Embedding(TOKENS, 16)
            self.core = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
            self.head = nn.Linear(16, TOKENS)

        def forward(self, source, target):
            mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
            return self.head(self.core(self.source(source), self.target(target), tgt_mask=mask))

    def loss_fn(model, batch):
        source, target = batch
        read = labels = target[:, :-1]
        return F.cross_entropy(model(source, read).transpose(1, 2), labels)  # DK325

    return {
        "model": Translator(),
        "batch": (_text(5, 7), _text(5, 11)),
        "loss_fn": loss_fn,
        "expect": {"module": "target"},
    }


def one_character_at_a_time():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.cell, self.head = nn.Embedding(TOKENS, 16), nn.GRUCell(16, 16), nn.Linear(16, TOKENS)

        def forward(self, token, state):
            state = self.cell(self.words(token), state)
            return self.head(state), state

    def loss_fn(model, text):
        state, loss = torch.zeros(len(text), 16), 0.0
        read, labels = text[:, :-1], text[:, :-1]
        for place in range(read.shape[1]):
            logits, state = model(read[:, place], state)
            loss = loss + F.cross_entropy(logits, labels[:, place])  # DK325
        return loss / read.shape[1]

    return {"model": Cell(), "batch": _text(4, 12), "loss_fn": loss_fn}


def one_hot_characters():
    class OneHot(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.head = nn.GRU(TOKENS, 16, batch_first=True), nn.Linear(16, TOKENS)

        def forward(self, ids):
            return self.head(self.mix(F.one_hot(ids, TOKENS).float())[0])

    def loss_fn(model, ids):
        return F.cross_entropy(model(ids).transpose(1, 2), ids)  # DK325

    return {"model": OneHot(), "batch": _text(6, 12), "loss_fn": loss_fn}


def action_read_from_its_own_token():
    """A decision transformer: return, state and action in turn. The action is predicted where it is read."""

    def loss_fn(model, batch):
        return F.cross_entropy(model(batch)[:, 2::3].transpose(1, 2), batch["actions"])  # DK325

    batch = {"returns": torch.rand(6, 8), "states": torch.randn(6, 8, 3), "actions": torch.randint(0, 9, (6, 8))}
    return {"model": DecisionTransformer(), "batch": batch, "loss_fn": loss_fn}


class DecisionTransformer(nn.Module):
    """Logits (B, 3T, A) at the places of returns, states and actions."""

    def __init__(self):
        super().__init__()
        self.returns, self.states, self.actions = nn.Linear(1, 16), nn.Linear(3, 16), nn.Embedding(9, 16)
        self.attention, self.head = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 9)

    def forward(self, batch):
        parts = self.returns(batch["returns"][..., None]), self.states(batch["states"]), self.actions(batch["actions"])
        x = torch.stack(parts, 2).flatten(1, 2)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.head(x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0])
