"""Losses that include padding."""

import torch
import torch.nn.functional as F
from torch import nn


class ChunkPolicy(nn.Module):
    """Predicts a chunk of actions from a state. Subclasses define the loss."""

    def __init__(self, state=5, horizon=4, action=3):
        super().__init__()
        self.head = nn.Linear(state, horizon * action)
        self.horizon = horizon

    def predict(self, state):
        return self.head(state).unflatten(-1, (self.horizon, -1))  # (B, H, A)


def _chunks(size=6):
    is_pad = torch.zeros(size, 4, dtype=torch.bool)
    is_pad[1, 2:], is_pad[2, 1:], is_pad[3, 3:] = True, True, True
    return {"state": torch.randn(size, 5), "action": torch.randn(size, 4, 3), "action_is_pad": is_pad}


def _text():
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0]])
    return {"input_ids": torch.randint(3, 60, mask.shape) * mask, "attention_mask": mask}


class Tracker(nn.Module):
    """Predicts an action at each step of a sequence of states. Subclasses know where a sequence ends."""

    def __init__(self):
        super().__init__()
        self.embed, self.gru, self.head = nn.Linear(5, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 2)

    def steps(self, states):
        return self.head(self.gru(self.embed(states))[0])  # (B, T, A)


def _sequences():
    lengths = torch.tensor([7, 4, 6, 3])
    valid = torch.arange(7) < lengths[:, None]
    states, wanted = (torch.randn(4, 7, size) * valid[..., None] for size in (5, 2))
    return {"states": states, "lengths": lengths, "wanted": wanted}, valid


def regression_over_all_positions_of_a_mask():
    class Masked(Tracker):
        def forward(self, states, attention_mask, wanted):
            steps = self.steps(states * attention_mask[..., None])
            return {"loss": (steps - wanted).square().mean(), "steps": steps}

    batch, valid = _sequences()
    del batch["lengths"]
    expected = {"severity": "warning", "message": "8 of 8 padded"}
    return {"model": Masked(), "batch": batch | {"attention_mask": valid.long()}, "expect": expected}


def padding_known_by_the_lengths_and_normalised():
    """Each sequence was normalised with statistics of its own, so its padding is constant, but not zero."""

    class Packed(Tracker):
        def forward(self, states, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(
                self.embed(states), lengths, batch_first=True, enforce_sorted=False
            )
            return self.head(nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True)[0])

    batch, _ = _sequences()
    batch["states"] = batch["states"] - torch.randn(4, 1, 5)
    loss = lambda model, batch: (model(batch["states"], batch["lengths"]) - batch["wanted"]).abs().mean()  # noqa: E731
    return {"model": Packed(), "batch": batch, "loss_fn": loss, "expect": {"severity": "warning"}}


def masked_then_averaged():
    class Policy(ChunkPolicy):
        def forward(self, state, action, action_is_pad):
            error = F.l1_loss(self.predict(state), action, reduction="none")
            masked = error * ~action_is_pad.unsqueeze(-1)
            return {"loss": masked.mean()}  # DK309

    return {"model": Policy(), "batch": _chunks(), "expect": {"severity": "error", "message": "6 of 24"}}


def masked_operands_given_to_a_loss_that_averages():
    class Policy(ChunkPolicy):
        def forward(self, state, action, action_is_pad):
            valid = ~action_is_pad[..., None]
            return {"loss": F.mse_loss(self.predict(state) * valid, action * valid)}  # DK309

    return {"model": Policy(), "batch": _chunks(), "expect": {"severity": "error"}}


def several_noise_draws_of_each_sample():
    """Flow matching: the mask is repeated with the samples."""

    class Flow(ChunkPolicy):
        def __init__(self):
            super().__init__(state=5 + 12)

        def forward(self, state, action, action_is_pad):
            state, action, is_pad = (x.repeat_interleave(2, dim=0) for x in (state, action, action_is_pad))
            noise, time = torch.randn_like(action), torch.rand(len(action), 1, 1)
            noisy = time * action + (1 - time) * noise
            velocity = self.predict(torch.cat([state, noisy.flatten(1)], dim=-1))
            error = (velocity - (action - noise)).square().mean(-1)
            return {"loss": (error * ~is_pad).mean()}  # DK309

    return {"model": Flow(), "batch": _chunks(), "expect": {"severity": "error"}}


def mask_read_under_another_name():
    class Policy(ChunkPolicy):
        def forward(self, state, action, **rest):
            error = F.l1_loss(self.predict(state), action, reduction="none")
            is_pad = rest.get("actions_is_pad")
            return {"loss": error.mean() if is_pad is None else error[~is_pad].mean()}

    return {"model": Policy(), "batch": _chunks(), "expect": {"severity": "warning", "message": "count in the loss"}}


def labels_padded_with_a_real_token():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4
    )
    batch = _text()
    return {
        "model": LlamaForCausalLM(config),
        "batch": batch | {"labels": batch["input_ids"].clone()},
        "expect": {"severity": "error", "message": "5 labels in the padding"},
    }


def token_loss_averaged_over_all_positions():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(64, 16), nn.Linear(16, 64)

        def forward(self, input_ids, attention_mask, labels):
            logits = self.head(self.embedding(input_ids))
            loss = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
            return {"loss": (loss * attention_mask).mean(), "logits": logits}

    batch = _text()
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    return {"model": Model(), "batch": batch | {"labels": labels}, "expect": {"message": "the mean includes"}}


def ids_of_a_decoder_whose_last_one_is_a_target_only():
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.gru = nn.Embedding(20, 16, padding_idx=0), nn.GRU(16, 16, batch_first=True)
            self.head = nn.Linear(16, 20)

        def forward(self, ids):
            return self.head(self.gru(self.table(ids))[0])

    valid = torch.arange(8) < torch.tensor([8, 5, 6, 3])[:, None]
    loss = lambda model, ids: F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())  # noqa: E731
    expected = {"severity": "warning", "message": "7 of 7 padded"}
    return {"model": Decoder(), "batch": torch.randint(1, 20, (4, 8)) * valid, "loss_fn": loss, "expect": expected}
