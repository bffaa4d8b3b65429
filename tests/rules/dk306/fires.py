"""Policies that ignore the image or the instruction."""

import torch
from torch import nn

import debugkit


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = nn.Conv2d(3, 8, 4, stride=4)
        self.words, self.own = nn.Embedding(16, 8), nn.Linear(3, 8)
        self.head = nn.Linear(8, 2)

    def fuse(self, image, text, state):
        return image + text + state

    def forward(self, pixel_values, input_ids, attention_mask, state, action):
        image = self.vision(pixel_values).mean((2, 3))
        text = (self.words(input_ids) * attention_mask[..., None]).sum(1)
        prediction = self.head(self.fuse(image, text, self.own(state)))
        return {"loss": (prediction - action).square().mean(), "action": prediction}


def _batch(size=4):
    return {
        "pixel_values": torch.randn(size, 3, 8, 8),
        "input_ids": torch.randint(0, 16, (size, 5)),
        "attention_mask": torch.ones(size, 5, dtype=torch.long),
        "state": torch.randn(size, 3),
        "action": torch.randn(size, 2),
    }


def image_features_are_not_used():
    class Blind(Policy):
        def fuse(self, image, text, state):
            return text + state

    return {
        "model": Blind(),
        "batch": _batch(),
        "expect": {"severity": "warning", "message": "`pixel_values` is ignored"},
    }


def text_is_masked_out_entirely():
    class Deaf(Policy):
        def forward(self, attention_mask, **rest):
            return super().forward(attention_mask=torch.zeros_like(attention_mask), **rest)

    declare = debugkit.Declare(modalities=("input_ids", "pixel_values"))
    return {
        "model": Deaf(),
        "batch": _batch(),
        "declare": declare,
        "expect": {"severity": "error", "message": "`input_ids` is ignored"},
    }


def neither_is_read():
    class Memoryless(Policy):
        def fuse(self, image, text, state):
            return state

    return {"model": Memoryless(), "batch": _batch(), "expect": {"count": 2}}


def image_is_not_used_and_the_loss_holds_a_generator_and_a_step_counter():
    """Each pass would get other noise and another weight, if what the loss holds were not put back between passes."""

    class Blind(Policy):
        def fuse(self, image, text, state):
            return text + state

    generator, seen = torch.Generator().manual_seed(1), {"steps": 0}

    def loss_fn(model, batch):
        seen["steps"] += 1
        noise = torch.randn(batch["action"].shape, generator=generator)
        return model(**{**batch, "action": batch["action"] + noise})["loss"] * seen["steps"]

    return {
        "model": Blind(),
        "batch": _batch(),
        "loss_fn": loss_fn,
        "expect": {"severity": "warning", "message": "`pixel_values` is ignored"},
    }


SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.own = nn.Conv2d(3, 8, 4, stride=4), nn.Linear(3, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, ARGUMENTS):
        image = IMAGE
        prediction = self.head(self.vision(image).mean((2, 3)) + self.own(STATE))
        return RETURNED

torch.manual_seed(0)
model = Policy()
optimizer = torch.optim.Adam(model.parameters())
samples = [{"image": torch.randn(3, 8, 8), "state": torch.randn(3), "action": torch.randn(2)} for _ in range(32)]
for batch in DataLoader(samples, batch_size=8):
    result = model(GIVEN)
    loss = LOSS
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def _script(**parts):
    text = SCRIPT
    for name, value in parts.items():
        text = text.replace(name, value)
    return text


def wrong_key_read_with_a_default_from_a_batch_of_which_the_script_takes_the_target():
    script = _script(
        ARGUMENTS="batch",
        IMAGE='batch.get("images", torch.zeros(len(batch["state"]), 3, 8, 8))',
        STATE='batch["state"]',
        RETURNED="prediction",
        GIVEN="batch",
        LOSS='(result - batch["action"]).square().mean()',
    )
    return {"script": script, "expect": {"severity": "warning", "message": "`batch.image` is ignored"}}


def state_that_changes_none_of_the_parts_of_the_loss():
    script = _script(
        ARGUMENTS="image, state, action",
        IMAGE="image",
        STATE="torch.zeros_like(state)",
        RETURNED="prediction, (prediction - action).square().mean(), (prediction - action).abs().mean()",
        GIVEN="**batch",
        LOSS="result[1] + result[2]",
    )
    return {"script": script, "expect": {"severity": "warning", "message": "`state` is ignored"}}


ONLY_INPUT = """
import torch
from torch import nn
from torch.utils.data import DataLoader

BATCH = 8

MODEL

torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters())
samples = [(torch.randn(3, 8, 8), label % 4) for label in range(32)]
for pictures, labels in DataLoader(samples, batch_size=BATCH, shuffle=True):
    loss = nn.functional.cross_entropy(model(pictures), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def _only_input(model):
    return {
        "script": ONLY_INPUT.replace("MODEL", model),
        "expect": {"severity": "warning", "message": "`x` is ignored", "count": 1},
    }


def class_token_attends_to_the_class_tokens_of_the_other_samples():
    return _only_input("""
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 16, 4, stride=4), nn.Linear(16, 4)
        self.token = nn.Parameter(torch.randn(BATCH, 1, 16))
        self.attention = nn.MultiheadAttention(16, 2)

    def forward(self, x):
        tokens = torch.cat([self.token, self.patches(x).flatten(2).transpose(1, 2)], dim=1)
        return self.head((tokens + self.attention(tokens, tokens, tokens)[0])[:, 0])
""")


def features_are_overwritten_by_a_table():
    return _only_input("""
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Flatten(), nn.Linear(192, 16)), nn.Linear(16, 4)
        self.positions = nn.Parameter(torch.randn(1, 16))

    def forward(self, x):
        hidden = self.body(x)
        hidden = self.positions.expand_as(hidden)
        return self.head(hidden.relu())
""")
