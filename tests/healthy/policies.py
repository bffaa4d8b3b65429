"""Vision-language-action policies: this project's with its three heads, PI0 of transformers, behaviour cloning."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PI0Config, PI0ForConditionalGeneration

from healthy.program import Program, program
from healthy.vision_and_speech import images
from labs.vla.dataset import Frames, batches, collate, demonstrations
from labs.vla.policy import Policy

BATCH = 16


def policy_program(head: str, model: Policy | None = None) -> Program:
    """The labs' policy from its base, on demonstrations of its own task."""
    frames = demonstrations(256, seed=1)

    def draw() -> dict[str, Tensor]:
        return collate(frames, torch.randperm(256)[:BATCH].numpy())

    return Program(model or Policy.from_base(head=head), draw, batch=next(batches(frames, BATCH, steps=1, seed=0)))


@program
def policy_that_regresses_chunks() -> Program:
    return policy_program("regression")


@program
def policy_that_says_action_tokens() -> Program:
    return policy_program("tokens")


@program
def policy_with_flow_matching() -> Program:
    return policy_program("flow_matching")


class LoaderOf(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Demonstrations one by one, for a DataLoader."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames

    def __len__(self) -> int:
        return len(self.frames.action)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        batch = collate(self.frames, torch.tensor([index]).numpy())
        return {name: tensor[0] for name, tensor in batch.items()}


@program
def policy_with_training_and_validation_loaders() -> Program:
    made = policy_program("regression")
    made.loaders = {
        "train": torch.utils.data.DataLoader(LoaderOf(demonstrations(96, seed=1)), BATCH, shuffle=True),
        "validation": torch.utils.data.DataLoader(LoaderOf(demonstrations(48, seed=2)), BATCH),
    }
    return made


@program
def policy_with_a_frozen_vision_tower() -> Program:
    policy = Policy.from_base()
    policy.vision.requires_grad_(False)
    return policy_program("regression", policy)


@program
def pi0_whose_last_prefix_layer_gives_keys_and_values_alone() -> Program:
    text_config = {
        "model_type": "gemma",
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "vocab_size": 64,
        "max_position_embeddings": 64,
    }
    vision_config = {
        "model_type": "siglip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "patch_size": 8,
        "image_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "vision_use_head": False,
    }
    config = PI0Config(
        vlm_config={
            "model_type": "paligemma",
            "text_config": text_config,
            "vision_config": vision_config,
            "projection_dim": 32,
            "image_token_id": 63,
        },
        dit_config={name: text_config[name] for name in text_config if name != "vocab_size"},
        chunk_size=4,
        max_state_dim=3,
        max_action_dim=3,
    )

    def draw() -> dict[str, Tensor]:
        ids = torch.cat([torch.full((4, 4), 63), torch.randint(3, 60, (4, 6))], 1)  # one camera of 4 patches, words
        mask = torch.ones_like(ids)
        mask[1, 8:] = 0
        return {
            "state": torch.randn(4, 3),
            "input_ids": ids,
            "attention_mask": mask,
            "pixel_values": images(4, 16)[:, None],  # (B, cameras, 3, S, S)
            "pixel_attention_mask": torch.ones(4, 1, dtype=torch.bool),
            "actions": torch.randn(4, 4, 3),
        }

    return Program(PI0ForConditionalGeneration(config), draw)


class ChunkDecoder(nn.Module):
    """An action-chunking transformer's decoder: learnt queries attend to the state and to image features."""

    def __init__(self, horizon: int = 4) -> None:
        super().__init__()
        self.read_state = nn.Linear(3, 32)
        self.read_image = nn.Conv2d(3, 32, 8, stride=8)
        self.query = nn.Parameter(torch.randn(horizon, 32))
        layer = nn.TransformerDecoderLayer(32, 4, 64, batch_first=True, dropout=0.1)
        self.decoder = nn.TransformerDecoder(layer, 2)
        self.head = nn.Linear(32, 7)

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        patches = self.read_image(batch["pixel_values"]).flatten(2).transpose(1, 2)  # (B, P, D)
        memory = torch.cat([patches, self.read_state(batch["state"])[:, None]], 1)
        queries = self.query.expand(len(memory), -1, -1)
        return {"action": self.head(self.decoder(queries, memory))}  # (B, H, A)


def masked_l1(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """L1 over the steps that belong to the episode, divided by their number."""
    error = F.l1_loss(model(batch)["action"], batch["action"], reduction="none").mean(-1)  # (B, H)
    valid = ~batch["action_is_pad"]
    return (error * valid).sum() / valid.sum()


def chunks() -> dict[str, Tensor]:
    """Pictures, states and chunks of four actions; some end with padded steps."""
    return {
        "pixel_values": images(),
        "state": torch.randn(4, 3),
        "action": torch.randn(4, 4, 7),
        "action_is_pad": torch.arange(4) >= torch.tensor([[4], [2], [3], [4]]),
    }


@program
def chunk_decoder_returning_a_dict() -> Program:
    return Program(ChunkDecoder(), chunks, masked_l1)


@program
def mixture_density_head() -> Program:
    """Three Gaussians; the loss is a negative log-likelihood, which is rightly negative at times."""

    class Density(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 32), nn.Mish(), nn.Linear(32, 3 * (1 + 2 + 2)))

        def forward(self, state: Tensor) -> torch.distributions.Distribution:
            weight, mean, spread = self.body(state).unflatten(-1, (3, 5)).split([1, 2, 2], -1)
            normal = torch.distributions.Normal(mean, F.softplus(spread) + 1e-2)
            return torch.distributions.MixtureSameFamily(
                torch.distributions.Categorical(logits=weight[..., 0]), torch.distributions.Independent(normal, 1)
            )

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return -model(batch["state"]).log_prob(batch["action"]).mean()

    return Program(Density(), lambda: {"state": torch.randn(8, 6), "action": torch.randn(8, 2)}, loss_fn)
