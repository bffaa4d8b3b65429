"""Inputs that matter, or of which it cannot be known."""

import torch
from torch import nn

import debugkit


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.own, self.head = nn.Conv2d(3, 8, 4, stride=4), nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, pixel_values, state, action, **_):
        feature = self.vision(pixel_values).mean((2, 3)) + self.own(state)
        return {"loss": (self.head(feature) - action).square().mean()}


def _batch(size=4):
    return {
        "pixel_values": torch.randn(size, 3, 8, 8),
        "state": torch.randn(size, 3),
        "action": torch.randn(size, 2),
    }


def metadata_that_no_model_reads():
    extra = {
        "episode_index": torch.arange(4),
        "timestamp": torch.rand(4),
        "next.state": torch.randn(4, 3),
        "action_is_pad": torch.zeros(4, 1, dtype=torch.bool),
        "image_sizes": torch.randint(0, 9, (4, 2)),
    }
    return {"model": Policy(), "batch": _batch() | extra}


def zero_initialised_head():
    model = Policy()
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)
    return {"model": model, "batch": _batch()}


def image_behind_a_closed_gate_and_a_zero_projection():
    class Gated(Policy):
        def __init__(self):
            super().__init__()
            self.gate, self.project = nn.Parameter(torch.zeros(())), nn.Linear(8, 8)
            nn.init.zeros_(self.project.weight)

        def forward(self, pixel_values, state, action):
            image = self.gate.tanh() * self.project(self.vision(pixel_values).mean((2, 3)))
            return {"loss": (self.head(image + self.own(state)) - action).square().mean()}

    return {"model": Gated(), "batch": _batch()}


def camera_switched_off_by_its_mask():
    class TwoCameras(Policy):
        def forward(self, images, image_masks, state, action):
            seen = [self.vision(images[name]).mean((2, 3)) * image_masks[name][:, None] for name in images]
            return {"loss": (self.head(sum(seen) + self.own(state)) - action).square().mean()}

    batch = _batch()
    image = batch.pop("pixel_values")
    cameras = {"top": image, "wrist": image.flip(0)}
    masks = {"top": torch.ones(4, dtype=torch.bool), "wrist": torch.zeros(4, dtype=torch.bool)}
    return {"model": TwoCameras(), "batch": batch | {"images": cameras, "image_masks": masks}}


def the_same_instruction_for_all():
    class Obeying(Policy):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(9, 8)

        def forward(self, input_ids, pixel_values, state, action):
            feature = self.vision(pixel_values).mean((2, 3)) + self.own(state) + 0 * self.words(input_ids).sum(1)
            return {"loss": (self.head(feature) - action).square().mean()}

    return {"model": Obeying(), "batch": _batch() | {"input_ids": torch.full((4, 3), 5)}}


def the_labs_policy_with_random_noise():
    from labs.vla.dataset import collate, demonstrations
    from labs.vla.policy import Policy as LabsPolicy
    from labs.vla.policy import PolicyConfig

    model = LabsPolicy(PolicyConfig(head="flow_matching"))
    return {"model": model, "batch": collate(demonstrations(8, 0), range(8))}


def contrastive_towers():
    from transformers import CLIPConfig, CLIPModel

    tiny = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = CLIPConfig(
        text_config=tiny | {"vocab_size": 32, "max_position_embeddings": 8, "eos_token_id": 2, "bos_token_id": 1},
        vision_config=tiny | {"image_size": 8, "patch_size": 4},
        projection_dim=8,
    )
    batch = {"pixel_values": torch.randn(3, 3, 8, 8), "input_ids": torch.randint(3, 32, (3, 6))}
    return {
        "model": CLIPModel(config),
        "batch": batch,
        "loss_fn": lambda model, batch: model(**batch, return_loss=True).loss,
    }


def one_sample():
    return {"model": Policy(), "batch": _batch(1), "expect": {"not_examined": "fewer than two samples"}}


def modality_that_is_not_there():
    return {
        "model": Policy(),
        "batch": _batch(),
        "declare": debugkit.Declare(modalities=("wrist_camera",)),
        "expect": {"not_examined": "no entry 'wrist_camera'"},
    }


def noise_from_a_generator_that_is_seeded_again():
    """Two equal passes differ more than the image moves the loss, so nothing can be said of the image."""

    def loss_fn(model, batch):
        fresh = torch.Generator()
        fresh.seed()
        noise = torch.randn(batch["action"].shape, generator=fresh)
        return model(**{**batch, "action": batch["action"] + 1000 * noise})["loss"]

    return {
        "model": Policy(),
        "batch": _batch(),
        "loss_fn": loss_fn,
        "expect": {"not_examined": "Two equal passes differ"},
    }
