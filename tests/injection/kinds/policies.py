"""Policies of robots: behaviour cloning, chunks, flow matching, action tokens, and PI0 of transformers."""

from __future__ import annotations

import random

from injection.architectures import Part, kind
from injection.datasets import episodes

NORMALISER = """
class Normaliser(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def normalise(self, action):
        return (action - self.mean) / (self.std + 1e-6)

    def unnormalise(self, action):
        return action * (self.std + 1e-6) + self.mean

"""
QUEUE = """
    def reset(self):
        self.queue = []

    @torch.no_grad()
    def predict(self, batch):
        if not self.queue:
            self.queue = list(self.normaliser.unnormalise({chunk}).unbind(1))
        return self.queue.pop(0)
"""
CLONE = """
def compute_loss(model, batch):
    batch = {{name: value.to(device) for name, value in batch.items()}}
    target = model.normaliser.normalise(batch["action"])
    action = model(batch)
    return F.{loss}(action, target)
"""
MASKED = """
def compute_loss(model, batch):
    batch = {{name: value.to(device) for name, value in batch.items()}}
    target = model.normaliser.normalise(batch["action"])
    error = F.{loss}(model(batch), target, reduction="none").mean(dim=-1)
    valid = ~batch["action_is_pad"]
    return (error * valid).sum() / valid.sum()
"""


@kind
def cloning_from_state(chance: random.Random) -> Part:
    width, activation = chance.choice((32, 48)), chance.choice(("ReLU", "GELU", "Tanh"))
    model = f"""
{NORMALISER}
class Policy(nn.Module):
    def __init__(self, width={width}):
        super().__init__()
        self.normaliser = Normaliser(ACTION_MEAN, ACTION_STD)
        self.fc1 = nn.Linear(STATE + 2, width)
        self.fc2 = nn.Linear(width, width)
        self.activation = nn.{activation}()
        self.head = nn.Linear(width, CHUNK * ACTION)
        self.queue = []

    def forward(self, batch):
        x = torch.cat([batch["state"], batch["goal"]], dim=-1)
        x = self.activation(self.fc1(x))
        x = self.activation(self.fc2(x))
        return self.head(x).view(-1, CHUNK, ACTION)
{QUEUE.format(chunk="self(batch)")}

def build_model():
    return Policy()
"""
    loss = CLONE.format(loss=chance.choice(("mse_loss", "l1_loss", "smooth_l1_loss")))
    return Part(model, episodes(chance, image=False), loss, "policy", rate=2e-3)


@kind
def chunks_from_pictures(chance: random.Random) -> Part:
    width, dropout = chance.choice((16, 32)), chance.choice((0.0, 0.1))
    model = f"""
{NORMALISER}
class Policy(nn.Module):
    def __init__(self, width={width}):
        super().__init__()
        self.normaliser = Normaliser(ACTION_MEAN, ACTION_STD)
        self.vision = nn.Conv2d(3, width, 4, stride=4)
        self.positions = nn.Parameter(0.02 * torch.randn(16, width))
        self.state = nn.Linear(STATE, width)
        self.queries = nn.Parameter(torch.randn(CHUNK, width))
        layer = nn.TransformerDecoderLayer(width, 2, 64, dropout={dropout}, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, {chance.choice((1, 2))})
        self.head = nn.Linear(width, ACTION)
        self.queue = []

    def forward(self, batch):
        patches = self.vision(batch["image"]).flatten(2).transpose(1, 2)
        patches = patches + self.positions
        memory = torch.cat([self.state(batch["state"])[:, None], patches], dim=1)
        queries = self.queries.expand(len(memory), -1, -1)
        x = self.decoder(queries, memory)
        return self.head(x)
{QUEUE.format(chunk="self(batch)")}

def build_model():
    return Policy()
"""
    loss = MASKED.format(loss=chance.choice(("l1_loss", "mse_loss")))
    return Part(model, episodes(chance, image=True, padded=True), loss, "policy")


@kind
def flow_matching(chance: random.Random) -> Part:
    model = f"""
{NORMALISER}
class Policy(nn.Module):
    def __init__(self, width={chance.choice((32, 48))}):
        super().__init__()
        self.normaliser = Normaliser(ACTION_MEAN, ACTION_STD)
        self.vision = nn.Sequential(nn.Conv2d(3, 16, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(256, width))
        self.state = nn.Linear(STATE, width)
        self.action = nn.Linear(CHUNK * ACTION, width)
        self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU())
        self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.head = nn.Linear(width, CHUNK * ACTION)

    def forward(self, batch, noisy, time):
        angles = time[:, None] * torch.logspace(0, 2, 8, device=time.device)
        embedded = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        seen = self.vision(batch["image"]) + self.state(batch["state"])
        x = seen + embedded + self.action(noisy.flatten(1))
        x = self.mlp(x)
        return self.head(x).view(-1, CHUNK, ACTION)

    @torch.no_grad()
    def predict(self, batch):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(len(batch["state"]), CHUNK, ACTION, generator=generator).to(batch["state"].device)
        for step in range(4):
            time = torch.full((len(x),), step / 4, device=x.device)
            x = x + self(batch, x, time) / 4
        return self.normaliser.unnormalise(x)


def build_model():
    return Policy()
"""
    loss = """
def compute_loss(model, batch):
    batch = {name: value.to(device) for name, value in batch.items()}
    target = model.normaliser.normalise(batch["action"])
    noise = torch.randn_like(target)
    time = torch.rand(len(target), device=target.device)
    noisy = (1 - time[:, None, None]) * noise + time[:, None, None] * target
    velocity = model(batch, noisy, time)
    return F.mse_loss(velocity, target - noise)
"""
    return Part(model, episodes(chance, image=True), loss, "policy")


@kind
def action_tokens(chance: random.Random) -> Part:
    bins, width = chance.choice((16, 32)), chance.choice((32, 48))
    model = f"""
BINS = {bins}


class Tokens(nn.Module):
    def __init__(self, low, high):
        super().__init__()
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    def encode(self, action):
        share = (action - self.low) / (self.high - self.low)
        return (share * BINS).long().clamp(0, BINS - 1)

    def decode(self, tokens):
        return self.low + (tokens + 0.5) / BINS * (self.high - self.low)


class Policy(nn.Module):
    def __init__(self, width={width}):
        super().__init__()
        self.tokens = Tokens(statistics.amin(0), statistics.amax(0))
        self.vision = nn.Sequential(nn.Conv2d(3, 16, 4, stride=4), nn.ReLU(), nn.Flatten())
        self.fc1 = nn.Linear(256 + STATE, width)
        self.activation = nn.GELU()
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(width, CHUNK * ACTION * BINS)

    def forward(self, batch):
        x = torch.cat([self.vision(batch["image"]), batch["state"]], dim=-1)
        x = self.activation(self.fc1(x))
        x = self.dropout(x)
        return self.head(x).view(-1, CHUNK, ACTION, BINS)

    @torch.no_grad()
    def predict(self, batch):
        return self.tokens.decode(self(batch).argmax(dim=-1))


def build_model():
    return Policy()
"""
    loss = """
def compute_loss(model, batch):
    batch = {name: value.to(device) for name, value in batch.items()}
    target = model.tokens.encode(batch["action"])
    logits = model(batch)
    return F.cross_entropy(logits.flatten(0, 2), target.flatten())
"""
    return Part(model, episodes(chance, image=True), loss, "policy", rate=2e-3)


@kind
def pi0(chance: random.Random) -> Part:
    model = f"""
IMAGE_TOKEN = 50


def build_model():
    text = {{
        "model_type": "gemma",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": {chance.choice((1, 2))},
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "vocab_size": 60,
    }}
    vision = {{
        "model_type": "siglip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 16,
        "patch_size": 8,
        "vision_use_head": False,
    }}
    config = PI0Config(
        vlm_config={{
            "model_type": "paligemma",
            "text_config": text,
            "vision_config": vision,
            "projection_dim": 32,
            "image_token_id": IMAGE_TOKEN,
        }},
        dit_config={{**text, "hidden_size": 16}},
        chunk_size=CHUNK,
        max_state_dim=STATE,
        max_action_dim=ACTION,
    )
    config.vlm_config.image_token_id = IMAGE_TOKEN
    return PI0ForConditionalGeneration(config)
"""
    loss = """
def compute_loss(model, batch):
    batch = {name: value.to(device) for name, value in batch.items()}
    action = (batch["action"] - ACTION_MEAN.to(device)) / ACTION_STD.to(device)
    words = torch.full((len(action), 3), 7, device=device)
    patches = torch.full((len(action), 4), IMAGE_TOKEN, device=device)
    input_ids = torch.cat([patches, words], dim=1)
    output = model(
        input_ids=input_ids,
        attention_mask=torch.ones_like(input_ids),
        pixel_values=batch["image"][:, None],
        pixel_attention_mask=torch.ones(len(action), 1, dtype=torch.bool, device=device),
        state=batch["state"],
        actions=action,
    )
    return output.loss
"""
    line = "from transformers import PI0Config, PI0ForConditionalGeneration"
    return Part(model, episodes(chance, image=True), loss, "policy", imports=(line,), rate=3e-4)
