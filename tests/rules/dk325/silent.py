"""Losses whose targets are ids that the model reads, without being a causal model that copies them; shifted losses."""

import torch
from torch import nn
from torch.nn import functional as F

TOKENS = 24
NO_IDS = "No targets of a loss are token ids"
ALIKE = "The targets are too few"


def _text(*shape):
    return torch.randint(1, TOKENS, shape)


class Decoder(nn.Module):
    """Logits (B, T, V). Each function changes the embedded ids (B, T, D)."""

    def __init__(self, change=lambda x: x, is_causal=True, attention=True, tokens=TOKENS):
        super().__init__()
        self.words, self.places = nn.Embedding(tokens, 16), nn.Embedding(64, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True) if attention else None
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, tokens)
        self.change, self.is_causal = change, is_causal

    def hidden(self, ids):
        length = ids.shape[1]
        x = self.change(self.words(ids)) + self.places(torch.arange(length))
        if self.attention is not None:
            mask = torch.ones(length, length, dtype=torch.bool).triu(1) if self.is_causal else None
            x = x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]
        return self.norm(x)

    def forward(self, ids):
        return self.head(self.hidden(ids))


def _copies(model, ids, **more):
    """The loss without a shift."""

    def loss_fn(model, ids):
        return F.cross_entropy(model(ids).transpose(1, 2), ids)

    return {"model": model, "batch": ids, "loss_fn": loss_fn} | more


def shifted_in_the_data():
    def loss_fn(model, text):
        return F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())

    return {"model": Decoder(), "batch": _text(6, 13), "loss_fn": loss_fn, "expect": {"not_examined": NO_IDS}}


def shifted_in_the_loss():
    def loss_fn(model, ids):
        return F.cross_entropy(model(ids)[:, :-1].transpose(1, 2), ids[:, 1:])

    return {"model": Decoder(), "batch": _text(6, 12), "loss_fn": loss_fn}


def inputs_shifted_after_the_embedding():
    """A first layer that sees only what is before, as in PixelCNN: the targets are the ids that are looked up."""
    return _copies(Decoder(lambda x: F.pad(x[:, :-1], (0, 0, 1, 0))), _text(6, 12))


def hugging_face_shifts_inside():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
    ids = torch.randint(3, 60, (4, 10))
    batch = {"input_ids": ids, "labels": ids.clone()}
    return {"model": GPT2LMHeadModel(config).train(), "batch": batch, "expect": {"not_examined": NO_IDS}}


def t5_copies_its_source():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)
    ids = torch.randint(3, 60, (4, 10))
    return {"model": T5ForConditionalGeneration(config), "batch": {"input_ids": ids, "labels": ids.clone()}}


def bert_reconstructs_its_input():
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    ids = torch.randint(3, 60, (4, 10))
    return {"model": BertForMaskedLM(config), "batch": {"input_ids": ids, "labels": ids.clone()}}


def autoencoder_that_sees_the_whole_text():
    return _copies(Decoder(is_causal=False), _text(6, 12))


def autoencoder_of_single_tokens():
    return _copies(Decoder(attention=False), _text(6, 12))


def decoder_of_blocks():
    """Positions see their own block of four, and all blocks before it."""
    block = torch.arange(12) // 4

    class Blocks(Decoder):
        def hidden(self, ids):
            x = self.words(ids)
            return self.norm(x + self.attention(x, x, x, attn_mask=block[:, None] < block, need_weights=False)[0])

    return _copies(Blocks(), _text(6, 12))


def denoiser_with_noise_at_each_token():
    return _copies(Decoder(lambda x: x + torch.randn_like(x)), _text(6, 12))


def words_dropped_in_training_mode():
    class Dropping(Decoder):
        def forward(self, ids):
            if self.training:
                ids = ids.masked_fill(torch.arange(ids.shape[1]) % 3 == 1, 0)
            return super().forward(ids)

    return _copies(Dropping(), _text(6, 12))


def bottleneck_with_a_sampled_code():
    """A causal variational autoencoder: the code of each token is sampled in training."""

    class Sampled(Decoder):
        def forward(self, ids):
            code = self.hidden(ids)
            return self.head(code + 0.1 * torch.randn_like(code) if self.training else code)

    return _copies(Sampled(), _text(6, 12))


def masked_after_the_embedding():
    """Only masked places are learnt, and the mask replaces embeddings, not ids."""
    hidden = torch.zeros(6, 12, dtype=torch.bool)
    hidden[:, 1::2] = True

    def loss_fn(model, ids):
        return F.cross_entropy(model(ids).transpose(1, 2), ids.masked_fill(~hidden, -100))

    model = Decoder(lambda x: torch.where(hidden[..., None], torch.zeros(16), x))
    return {"model": model, "batch": _text(6, 12), "loss_fn": loss_fn}


def masked_ids():
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["input_ids"]).transpose(1, 2), batch["labels"])

    ids, hidden = _text(6, 12), torch.rand(6, 12) < 0.3
    hidden[:, 2] = True
    batch = {"input_ids": ids.masked_fill(hidden, 0), "labels": ids.masked_fill(~hidden, -100)}
    return {
        "model": Decoder(is_causal=False),
        "batch": batch,
        "loss_fn": loss_fn,
        "expect": {"not_examined": NO_IDS},
    }


def tags_that_are_almost_the_ids():
    """A tagger whose vocabulary is that of the words: one word has another tag."""

    def loss_fn(model, ids):
        return F.cross_entropy(model(ids).transpose(1, 2), ids.clamp(max=TOKENS - 2))

    ids = _text(6, 12)
    ids[0, 0] = TOKENS - 1
    return {"model": Decoder(), "batch": ids, "loss_fn": loss_fn, "expect": {"not_examined": NO_IDS}}


def the_same_token_again_and_again():
    return _copies(Decoder(), _text(6, 1).expand(6, 24).contiguous(), expect={"not_examined": ALIKE})


def long_runs():
    """Bytes of a drawing: the next one is mostly the same."""
    return _copies(Decoder(), _text(6, 8).repeat_interleave(4, 1), expect={"not_examined": ALIKE})


def forecast_by_one_period():
    """Each target is four steps later, in a signal with this period."""

    def loss_fn(model, signal):
        return F.cross_entropy(model(signal[:, :-4]).transpose(1, 2), signal[:, 4:])

    signal = _text(6, 4).repeat(1, 6)
    return {"model": Decoder(), "batch": signal, "loss_fn": loss_fn, "expect": {"not_examined": ALIKE}}


def auxiliary_loss_beside_the_next_token():
    class TwoHeads(Decoder):
        def __init__(self):
            super().__init__()
            self.again = nn.Linear(16, TOKENS)

        def forward(self, ids):
            hidden = self.hidden(ids)
            return self.head(hidden), self.again(hidden)

    def loss_fn(model, ids):
        following, own = model(ids)
        loss = F.cross_entropy(following[:, :-1].transpose(1, 2), ids[:, 1:])
        return loss + 0.1 * F.cross_entropy(own.transpose(1, 2), ids)

    return {"model": TwoHeads(), "batch": _text(6, 12), "loss_fn": loss_fn}


def probe_of_a_frozen_model():
    """How well do the hidden states of a language model remember their token?"""
    model = Decoder()
    model.requires_grad_(False)
    model.head = nn.Linear(16, TOKENS)
    return _copies(model, _text(6, 12), expect={"not_examined": NO_IDS})


def action_read_from_the_state_before_it():
    """A decision transformer reads return, state and action in turn. Actions are predicted at the states."""

    class DecisionTransformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.returns, self.states, self.actions = nn.Linear(1, 16), nn.Linear(3, 16), nn.Embedding(9, 16)
            self.attention, self.head = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 9)

        def forward(self, returns, states, actions):
            x = torch.stack([self.returns(returns[..., None]), self.states(states), self.actions(actions)], 2)
            x = x.flatten(1, 2)
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            return self.head(x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0])

    def loss_fn(model, batch):
        return F.cross_entropy(model(**batch)[:, 1::3].transpose(1, 2), batch["actions"])

    batch = {"returns": torch.rand(6, 8), "states": torch.randn(6, 8, 3), "actions": torch.randint(0, 9, (6, 8))}
    return {"model": DecisionTransformer(), "batch": batch, "loss_fn": loss_fn}


def posterior_that_reads_the_targets():
    """A variational text model: one network reads the targets, whole, and the decoder reads the tokens before."""

    class Variational(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.encoder = nn.Embedding(TOKENS, 16), nn.GRU(16, 16, batch_first=True)
            self.decoder, self.head = nn.GRU(16, 16, batch_first=True), nn.Linear(16, TOKENS)

        def forward(self, text):
            code = self.encoder(self.words(text[:, 1:]))[1]
            return self.head(self.decoder(self.words(text[:, :-1]), code)[0])

    def loss_fn(model, text):
        return F.cross_entropy(model(text).transpose(1, 2), text[:, 1:])

    return {"model": Variational(), "batch": _text(6, 13), "loss_fn": loss_fn}


def teacher_forcing_one_token_at_a_time():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.cell, self.head = nn.Embedding(TOKENS, 16), nn.GRUCell(16, 16), nn.Linear(16, TOKENS)

        def forward(self, token, state):
            state = self.cell(self.words(token), state)
            return self.head(state), state

    def loss_fn(model, text):
        token, state, loss = torch.zeros(len(text), dtype=torch.long), torch.zeros(len(text), 16), 0.0
        for place in range(text.shape[1]):
            logits, state = model(token, state)
            loss = loss + F.cross_entropy(logits, text[:, place])
            token = text[:, place]
        return loss

    return {"model": Cell(), "batch": _text(4, 12), "loss_fn": loss_fn, "expect": {"not_examined": NO_IDS}}


def too_few_targets():
    return _copies(Decoder(), _text(1, 12), expect={"not_examined": ALIKE})


def causal_autoencoder_that_is_declared():
    import debugkit

    return _copies(
        Decoder(),
        _text(6, 12),
        declare=debugkit.Declare(causal=False),
        expect={"not_examined": "declared as not causal"},
    )


def instances_that_are_their_own_class():
    """Each sample has a learnt code, and its index is its class."""

    class Codes(nn.Module):
        def __init__(self):
            super().__init__()
            self.codes, self.head = nn.Embedding(64, 16), nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 64))

        def forward(self, index):
            return self.head(self.codes(index))

    def loss_fn(model, index):
        return F.cross_entropy(model(index), index)

    return {"model": Codes(), "batch": torch.randperm(64)[:32], "loss_fn": loss_fn}
