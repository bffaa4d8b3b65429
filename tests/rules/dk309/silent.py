"""Losses in which padding does not count, written in different ways."""

import torch
import torch.nn.functional as F
from torch import nn


class ChunkPolicy(nn.Module):
    def __init__(self, state=5):
        super().__init__()
        self.head = nn.Linear(state, 12)

    def predict(self, state):
        return self.head(state).unflatten(-1, (4, 3))


def _chunks(size=6):
    is_pad = torch.zeros(size, 4, dtype=torch.bool)
    is_pad[1, 2:], is_pad[2, 1:], is_pad[3, 3:] = True, True, True
    return {"state": torch.randn(size, 5), "action": torch.randn(size, 4, 3), "action_is_pad": is_pad}


def _policy(loss):
    class Policy(ChunkPolicy):
        def forward(self, state, action, action_is_pad):
            return {"loss": loss(self.predict(state), action, action_is_pad)}

    return {"model": Policy(), "batch": _chunks()}


def divided_by_what_counts():
    def loss(prediction, action, is_pad):
        valid = (~is_pad)[..., None].expand_as(action)
        return ((prediction - action).abs() * valid).sum() / valid.sum()

    return _policy(loss)


def only_valid_steps_are_picked():
    return _policy(lambda prediction, action, is_pad: F.smooth_l1_loss(prediction[~is_pad], action[~is_pad]))


def mean_of_the_masked_over_mean_of_the_mask():
    def loss(prediction, action, is_pad):
        valid = (~is_pad).float()
        return ((prediction - action).square().mean(-1) * valid).mean() / valid.mean()

    return _policy(loss)


def summed_over_steps():
    def loss(prediction, action, is_pad):
        return ((prediction - action).abs().mean(-1) * ~is_pad).sum(1).mean()

    return _policy(loss)


def flow_matching_reads_the_whole_noisy_chunk():
    """A padded step's target is an input to the other steps, but it is not learnt."""

    class Flow(ChunkPolicy):
        def __init__(self):
            super().__init__(state=5 + 12)

        def forward(self, state, action, action_is_pad):
            noise, time = torch.randn_like(action), torch.rand(len(action), 1, 1)
            noisy = time * action + (1 - time) * noise
            velocity = self.predict(torch.cat([state, noisy.flatten(1)], dim=-1))
            error = (velocity - (action - noise)).square().mean(-1)
            return {"loss": (error * ~action_is_pad).sum() / (~action_is_pad).sum()}

    return {"model": Flow(), "batch": _chunks()}


def the_labs_policy_with_each_head():
    from labs.vla.dataset import collate, demonstrations
    from labs.vla.policy import Policy, PolicyConfig

    return {"model": Policy(PolicyConfig(head="flow_matching")), "batch": collate(demonstrations(8, 0), range(8))}


def ignored_labels():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4
    )
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0]])
    ids = torch.randint(3, 60, mask.shape) * mask
    labels = ids.masked_fill(mask == 0, -100)
    return {
        "model": LlamaForCausalLM(config),
        "batch": {"input_ids": ids, "attention_mask": mask, "labels": labels},
    }


def first_token_predicted_from_padding_on_the_left():
    arguments = ignored_labels()
    arguments["batch"] = {key: tensor.flip(1) for key, tensor in arguments["batch"].items()}
    return arguments


def nothing_is_padded():
    arguments = divided_by_what_counts()
    arguments["batch"]["action_is_pad"].fill_(False)
    return arguments | {"expect": {"not_examined": "no padding that is known"}}


def answers_as_long_as_their_questions():
    """The mask belongs to the question of an encoder-decoder; the answers have (B, L) labels without padding."""
    from transformers import T5Config, T5ForConditionalGeneration

    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0]])
    ids = torch.randint(3, 60, mask.shape) * mask
    config = T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)
    batch = {"input_ids": ids, "attention_mask": mask, "labels": torch.randint(3, 60, mask.shape)}
    return {"model": T5ForConditionalGeneration(config), "batch": batch}


class Tracker(nn.Module):
    """Predicts an action at each step of a sequence of states, of which the lengths are known."""

    def __init__(self):
        super().__init__()
        self.embed, self.gru, self.head = nn.Linear(5, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 2)

    def forward(self, states, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(states), lengths, batch_first=True, enforce_sorted=False)
        return self.head(nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True)[0])


def _sequences():
    lengths = torch.tensor([7, 4, 6, 3])
    valid = torch.arange(7) < lengths[:, None]
    states, wanted = (torch.randn(4, 7, size) * valid[..., None] for size in (5, 2))
    return {"states": states, "lengths": lengths, "wanted": wanted}, valid


def steps_after_the_end_are_left_out():
    batch, valid = _sequences()

    def loss(model, batch):
        return (model(batch["states"], batch["lengths"]) - batch["wanted"])[valid].square().mean()

    return {"model": Tracker(), "batch": batch, "loss_fn": loss}


def only_the_last_step_of_each_sequence_is_learnt():
    batch, _ = _sequences()

    def loss(model, batch):
        steps = model(batch["states"], batch["lengths"])
        return (steps[torch.arange(4), batch["lengths"] - 1] - batch["wanted"][:, 0]).square().mean()

    return {"model": Tracker(), "batch": batch, "loss_fn": loss}


def as_many_actions_as_the_instruction_has_words():
    """The mask is that of the instruction, and the chunk of actions has no padding."""

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.steps, self.head = nn.Embedding(60, 16), nn.Embedding(6, 16), nn.Linear(16, 3)

        def forward(self, input_ids, attention_mask):
            words = self.words(input_ids) * attention_mask[..., None]
            read = words.sum(1) / attention_mask.sum(1, keepdim=True)
            return self.head(torch.tanh(read[:, None] + self.steps.weight))  # (B, 6, 3)

    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0]])
    batch = {
        "input_ids": torch.randint(3, 60, mask.shape) * mask,
        "attention_mask": mask,
        "wanted": torch.randn(3, 6, 3),
    }
    loss = lambda model, batch: (model(batch["input_ids"], batch["attention_mask"]) - batch["wanted"]).abs().mean()  # noqa: E731
    return {"model": Policy(), "batch": batch, "loss_fn": loss}
