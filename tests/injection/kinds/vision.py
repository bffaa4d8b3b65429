"""Pictures: classifiers of transformers with a head of our own, and convolutional networks."""

from __future__ import annotations

import random

from injection.architectures import Part, kind
from injection.datasets import images

CLASSIFY = """
def compute_loss(model, batch):
    image, label = batch["image"].to(device), batch["label"].to(device)
    logits = model(image)
    return F.cross_entropy(logits, label{smooth})
"""


def _loss(chance: random.Random) -> str:
    return CLASSIFY.format(smooth=chance.choice(("", "", ", label_smoothing=0.1")))


def _tower(chance: random.Random, imports: str, config: str, pooled: str, width: int, size: int = 16) -> Part:
    """A backbone of transformers, pooled, and a head."""
    dropout = chance.choice((0.0, 0.1))
    head = chance.choice(
        (
            "nn.Linear(WIDTH, CLASSES)",
            "nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, CLASSES))",
        )
    )
    model = f"""
WIDTH = {width}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = {config}
        self.norm = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout({dropout})
        self.head = {head}

    def forward(self, image):
        hidden = self.backbone(pixel_values=image)
        pooled = {pooled}
        pooled = self.dropout(self.norm(pooled))
        return self.head(pooled)


def build_model():
    return Classifier()
"""
    return Part(model, images(chance, size=size), _loss(chance), "classify images", imports=(imports,))


def _sizes(chance: random.Random, width: int = 32) -> str:
    return (
        f"hidden_size={width}, intermediate_size={width * 2}, num_hidden_layers={chance.choice((1, 2, 2))}, "
        f"num_attention_heads={chance.choice((2, 4))}, image_size=16, patch_size={chance.choice((4, 8))}"
    )


@kind
def vit(chance: random.Random) -> Part:
    config = f"ViTModel(ViTConfig({_sizes(chance)}), add_pooling_layer=False)"
    pooled = chance.choice(("hidden.last_hidden_state[:, 0]", "hidden.last_hidden_state.mean(dim=1)"))
    return _tower(chance, "from transformers import ViTConfig, ViTModel", config, pooled, 32)


@kind
def siglip_vision(chance: random.Random) -> Part:
    config = f"SiglipVisionModel(SiglipVisionConfig({_sizes(chance)}, vision_use_head=False))"
    line = "from transformers import SiglipVisionConfig, SiglipVisionModel"
    return _tower(chance, line, config, "hidden.last_hidden_state.mean(dim=1)", 32)


@kind
def dinov2(chance: random.Random) -> Part:
    sizes = _sizes(chance).replace("intermediate_size=64, ", "")
    config = f"Dinov2Model(Dinov2Config({sizes}))"
    line = "from transformers import Dinov2Config, Dinov2Model"
    return _tower(chance, line, config, "hidden.last_hidden_state[:, 0]", 32)


@kind
def convnext(chance: random.Random) -> Part:
    config = "ConvNextModel(ConvNextConfig(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2, patch_size=2))"
    line = "from transformers import ConvNextConfig, ConvNextModel"
    return _tower(chance, line, config, "hidden.last_hidden_state.mean(dim=(2, 3))", 32)


@kind
def swin(chance: random.Random) -> Part:
    config = (
        "SwinModel(SwinConfig(image_size=16, patch_size=2, embed_dim=16, depths=[1, 1], num_heads=[2, 2], "
        "window_size=4), add_pooling_layer=False)"
    )
    line = "from transformers import SwinConfig, SwinModel"
    return _tower(chance, line, config, "hidden.last_hidden_state.mean(dim=1)", 32)


@kind
def vit_with_labels(chance: random.Random) -> Part:
    model = f"""
def build_model():
    return ViTForImageClassification(ViTConfig({_sizes(chance)}, num_labels=CLASSES))
"""
    data = images(chance).replace('{"image": image, "label": ', '{"pixel_values": image, "labels": ')
    line = "from transformers import ViTConfig, ViTForImageClassification"
    return Part(model, data, HUGGING_FACE, "classify images", imports=(line,))


HUGGING_FACE = """
def compute_loss(model, batch):
    batch = {name: value.to(device) for name, value in batch.items()}
    return model(**batch).loss
"""


@kind
def plain_cnn(chance: random.Random) -> Part:
    width, activation = chance.choice((8, 16)), chance.choice(("nn.ReLU()", "nn.GELU()", "nn.LeakyReLU(0.1)"))
    norms = {"batch": "nn.BatchNorm2d({})", "group": "nn.GroupNorm(4, {})", "none": "nn.Identity()"}
    norm = norms[chance.choice(list(norms))]
    model = f"""
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, {width}, 3, padding=1)
        self.norm1 = {norm.format(width)}
        self.conv2 = nn.Conv2d({width}, {2 * width}, 3, stride=2, padding=1)
        self.norm2 = {norm.format(2 * width)}
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.fc1 = nn.Linear({8 * width}, 32)
        self.activation = {activation}
        self.dropout = nn.Dropout({chance.choice((0.1, 0.25))})
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x):
        x = self.activation(self.norm1(self.conv1(x)))
        x = self.activation(self.norm2(self.conv2(x)))
        x = self.pool(x).flatten(1)
        x = self.activation(self.fc1(x))
        x = self.dropout(x)
        return self.head(x)


def build_model():
    return Network()
"""
    return Part(model, images(chance), _loss(chance), "classify images")


@kind
def residual_network(chance: random.Random) -> Part:
    norm = chance.choice(("nn.BatchNorm2d(width)", "nn.GroupNorm(2, width)"))
    inplace = chance.choice(("", "inplace=True"))
    model = f"""
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = {norm}
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = {norm}
        self.activation = nn.ReLU({inplace})

    def forward(self, x):
        h = self.activation(self.norm1(self.conv1(x)))
        h = self.norm2(self.conv2(h))
        return self.activation(x + h)


class ResNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = x.mean(dim=(2, 3))
        return self.head(x)


def build_model():
    return ResNet({chance.choice((8, 16))}, {chance.choice((2, 3))})
"""
    return Part(model, images(chance), _loss(chance), "classify images")


@kind
def mlp_mixer(chance: random.Random) -> Part:
    model = f"""
class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 32), nn.GELU(), nn.Linear(32, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channels(self.norm2(x))
        return x


class Mixer(nn.Module):
    def __init__(self, width={chance.choice((16, 32))}, depth={chance.choice((1, 2))}):
        super().__init__()
        self.embed = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.ModuleList([MixerBlock(16, width) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, image):
        x = self.embed(image).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x).mean(dim=1)
        return self.head(x)


def build_model():
    return Mixer()
"""
    return Part(model, images(chance), _loss(chance), "classify images")


@kind
def unet(chance: random.Random) -> Part:
    final, loss = chance.choice(
        (
            ("1", 'F.binary_cross_entropy_with_logits(logits.squeeze(1), batch["mask"].to(device))'),
            ("2", 'F.cross_entropy(logits, batch["mask"].to(device).long())'),
        )
    )
    width = chance.choice((8, 12))
    model = f"""
def double(channels, width):
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, width={width}):
        super().__init__()
        self.down1, self.down2 = double(3, width), double(width, 2 * width)
        self.middle = double(2 * width, 2 * width)
        self.up2 = nn.ConvTranspose2d(2 * width, 2 * width, 2, stride=2)
        self.join2 = double(4 * width, width)
        self.up1 = nn.ConvTranspose2d(width, width, 2, stride=2)
        self.join1 = double(2 * width, width)
        self.head = nn.Conv2d(width, {final}, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        b = self.join2(torch.cat([self.up2(c), b], dim=1))
        a = self.join1(torch.cat([self.up1(b), a], dim=1))
        return self.head(a)


def build_model():
    return UNet()
"""
    loss_text = f"""
def compute_loss(model, batch):
    logits = model(batch["image"].to(device))
    return {loss}
"""
    data = images(chance).replace(
        '"label": self.label[index]}', '"mask": (self.pixels[index].float().mean(0) > 127).float()}'
    )
    return Part(model, data, loss_text, "segment images")
