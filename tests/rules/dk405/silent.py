"""Action tokens that survive the round trip, with all kinds of bins."""

import numpy as np
import torch
from torch import nn

import debugkit


def _declared(encode, decode, **expect):
    return {
        "model": nn.Linear(4, 3),
        "declare": debugkit.Declare(action_tokens=(encode, decode)),
        "expect": expect,
    }


def centres_of_uniform_bins():
    return _declared(
        lambda action: (32 * (action + 1)).floor().long().clamp(0, 63), lambda tokens: (tokens + 0.5) / 32 - 1
    )


def rounding_to_levels_that_include_the_ends():
    return _declared(
        lambda action: ((action.clamp(-1, 1) + 1) * 127.5).round().long(), lambda tokens: tokens / 127.5 - 1
    )


def the_end_of_the_vocabulary_as_openvla_does():
    edges = np.linspace(-1, 1, 256)
    centres = (edges[:-1] + edges[1:]) / 2

    def encode(action):
        return torch.from_numpy(32_000 - np.digitize(np.clip(action.numpy(), -1, 1), edges))

    def decode(tokens):
        return torch.from_numpy(centres[np.clip(32_000 - tokens.numpy() - 1, 0, len(centres) - 1)]).float()

    return _declared(encode, decode)


def bins_of_equal_mass():
    edges = torch.distributions.Normal(0, 0.4).icdf(torch.linspace(0.01, 0.99, 33))
    centres = (edges[1:] + edges[:-1]) / 2
    return _declared(lambda action: (torch.bucketize(action, edges) - 1).clamp(0, 31), lambda tokens: centres[tokens])


def the_labs_token_head_found_by_its_parameter():
    from labs.vla.dataset import collate, demonstrations
    from labs.vla.policy import Policy, PolicyConfig

    return {"model": Policy(PolicyConfig(head="tokens")), "batch": collate(demonstrations(4, 0), range(4))}


def chunk_in_fewer_tokens():
    return _declared(
        lambda action: action.flatten(1).sum(1).round().long()[:1],
        lambda tokens: tokens.float(),
        not_examined="one token for each action value",
    )


def text_tokeniser_of_a_language_model():
    class Words:
        def encode(self, text):
            return [1, 2]

        def decode(self, ids):
            return "go"

    model = nn.Linear(4, 3)
    model.tokenizer = Words()
    return {"model": model, "expect": {"not_examined": "No pair that encodes actions"}}
