"""Images that reach the model as the camera delivers them."""

import torch
from torch import nn


def _camera(size=2, side=16):
    return torch.randint(0, 256, (size, 3, side, side)).float()


def _norm(output):
    return output.square().mean()


def siglip_given_raw_pixels():
    from transformers import SiglipVisionConfig, SiglipVisionModel

    config = SiglipVisionConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8
    )
    return {
        "model": SiglipVisionModel(config),
        "batch": {"pixel_values": _camera()},
        "loss_fn": lambda model, batch: _norm(model(**batch).last_hidden_state),
        "expect": {"module": "embeddings.patch_embedding", "severity": "warning", "message": "from 0 to 255"},
    }


def second_camera_is_forgotten():
    class TwoCameras(nn.Module):
        def __init__(self):
            super().__init__()
            self.top, self.wrist = (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)) for _ in range(2))

        def forward(self, top, wrist):
            return {"loss": _norm(self.top(top / 255)) + _norm(self.wrist(wrist))}

    return {
        "model": TwoCameras(),
        "batch": {"top": _camera(), "wrist": _camera()},
        "expect": {"module": "wrist.0"},
    }


def linear_patch_embedding():
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch_embed = nn.Linear(3 * 4 * 4, 8)

        def forward(self, image):
            patches = image.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).flatten(3)
            return {"loss": _norm(self.patch_embed(patches))}

    return {"model": Patches(), "batch": {"image": _camera()}, "expect": {"module": "patch_embed"}}
