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


VAE = """
import torch
from torch import nn

class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(3, 8), nn.Linear(4, 3)

    def forward(self, inputs, outputs):
        mean, variance = self.encoder(inputs["qpos"]).chunk(2, dim=-1)
        made = self.decoder(mean + torch.randn_like(mean) * (variance / 2).exp())
        return {
            "reconstructions": {"qpos": made},
            "kl_loss": 0.5 * (mean.square() + variance.exp() - variance - 1).mean(),
            "reconstruction_loss": (made - outputs["qpos"]).square().mean(),
        }

torch.manual_seed(0)
model = VAE()
optimizer = torch.optim.Adam(model.parameters())
for state in torch.utils.data.DataLoader(torch.randn(64, 3), batch_size=8):
    result = model({"qpos": state}, {"qpos": state + 0.1 * torch.randn_like(state)})
    optimizer.zero_grad()
    (result["kl_loss"] + result["reconstruction_loss"]).backward()
    optimizer.step()
"""


def target_of_a_model_that_returns_the_parts_of_its_loss():
    """No part is called `loss`, and the target changes only one of them."""
    return {"script": VAE}


def target_of_a_model_that_keeps_its_losses():
    """They are in an attribute, so nothing that the model returns depends on the target."""
    kept = VAE.replace(
        "        return {",
        '        self.reconstruction_loss = (made - outputs["qpos"]).square().mean()\n        return {',
    ).replace('            "reconstruction_loss": (made - outputs["qpos"]).square().mean(),\n', "")
    return {"script": kept.replace('result["reconstruction_loss"]', "model.reconstruction_loss")}


TWO_TASKS = """
import torch
from torch import nn
from torch.utils.data import DataLoader

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.act, self.locate = nn.Conv2d(3, 8, 4, stride=4), nn.Linear(8, 2), nn.Linear(8, 3)

    def forward(self, image, state, action):
        seen = self.vision(image).mean((2, 3))
        prediction = self.act(seen)
        return prediction, (prediction - action).square().mean(), (self.locate(seen) - state).square().mean()

torch.manual_seed(0)
model = Policy()
optimizer = torch.optim.Adam(model.parameters())
samples = [{"image": torch.randn(3, 8, 8), "state": torch.randn(3), "action": torch.randn(2)} for _ in range(32)]
for batch in DataLoader(samples, batch_size=8):
    _, imitation, location = model(**batch)
    optimizer.zero_grad()
    (imitation + 0.1 * location).backward()
    optimizer.step()
"""


def state_that_only_the_loss_of_a_second_task_uses():
    return {"script": TWO_TASKS}


OF_A_WHOLE_BATCH = """
import torch
from torch import nn
from torch.utils.data import DataLoader

class StateFromImage(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.head = nn.Conv2d(3, 8, 4, stride=4), nn.Linear(8, 3)

    def forward(self, batch):
        return self.head(self.vision(batch["image"]).mean((2, 3)))

torch.manual_seed(0)
model = StateFromImage()
optimizer = torch.optim.Adam(model.parameters())
samples = [{"image": torch.randn(3, 8, 8), "state": torch.randn(SIZE)} for _ in range(32)]
for batch in DataLoader(samples, batch_size=8):
    BEFORE
    loss = (model(batch) - TARGET).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def _of_a_whole_batch(size, before, target):
    text = OF_A_WHOLE_BATCH.replace("SIZE", size).replace("BEFORE", before).replace("TARGET", target)
    return {"script": text}


def target_that_the_script_takes_from_the_batch_that_it_gave_to_the_model():
    return _of_a_whole_batch("6", "pass", 'batch["state"][:, 3:]')


def target_that_was_computed_from_the_batch_before_the_call():
    return _of_a_whole_batch("3", 'wanted = batch["state"] / 2', "wanted")


ONLY_INPUT = """
import torch
from torch import nn
from torch.utils.data import DataLoader

MODEL

torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters())
samples = [(torch.randn(3, 8, 8), torch.randn(4)) for _ in range(32)]
for pictures, wanted in DataLoader(samples, batch_size=8, shuffle=True):
    loss = LOSS
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def _only_input(model, loss="(model(pictures) - wanted).square().mean()", why=None):
    script = ONLY_INPUT.replace("MODEL", model).replace("LOSS", loss)
    return {"script": script, "expect": {} if why is None else {"not_examined": why}}


def only_input_is_behind_a_layer_that_begins_at_zero():
    return _only_input("""
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Flatten(), nn.Linear(192, 16)), nn.Linear(16, 4)
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        return self.head(self.body(x).relu())
""")


def no_neuron_fires_yet():
    return _only_input(
        """
class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, potential):
        ctx.save_for_backward(potential)
        return (potential > 9).float()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / (1 + ctx.saved_tensors[0].abs()) ** 2

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))

    def forward(self, x):
        return Spike.apply(self.body(x))
""",
        why="The model's output has no number other than 0",
    )


def output_is_a_distribution():
    return _only_input(
        """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))

    def forward(self, x):
        return torch.distributions.Normal(self.body(x), 1.0)
""",
        "-model(pictures).log_prob(wanted).mean()",
        why="an object of type Normal, which cannot be compared",
    )


def only_input_tells_how_many_samples_are_wanted():
    return _only_input(
        """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.template = nn.Parameter(torch.randn(1, 3, 8, 8))

    def forward(self, x):
        return self.template.expand_as(x)
""",
        "(model(pictures) - pictures).square().mean()",
        why="each input that changes nothing may be its target",
    )
