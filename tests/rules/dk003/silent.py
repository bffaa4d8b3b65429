"""Steps that would run on any device."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, SiglipVisionConfig, SiglipVisionModel


def _ids():
    return torch.randint(0, 50, (2, 6))


def language_model_with_padding():
    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, vocab_size=50
    )
    ids, mask = _ids(), torch.ones(2, 6, dtype=torch.long)
    mask[0, 4:] = 0
    return {"model": LlamaForCausalLM(config), "batch": {"input_ids": ids, "attention_mask": mask, "labels": ids}}


def vision_tower():
    config = SiglipVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8
    )
    return {
        "model": SiglipVisionModel(config),
        "batch": {"pixel_values": torch.randn(2, 3, 16, 16)},
        "loss_fn": lambda model, batch: model(**batch).last_hidden_state.square().mean(),
    }


class Careful(nn.Module):
    """Factories with a device, scalars, and a tensor that is moved before it is used."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 1)
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x):
        keep = x.new_ones(x.shape[-1])
        places = torch.arange(4, device=x.device)
        table = torch.linspace(0, 1, 4).to(x)
        half = torch.tensor(0.5)
        return {"loss": self.head(x * keep * self.scale + places * table * half).mean()}


def device_aware_module():
    return {"model": Careful(), "batch": {"x": torch.randn(3, 4)}}


def logged_on_the_cpu():
    seen = []

    def loss_fn(model, batch):
        output = model(batch["x"])
        seen.append(output.detach().cpu().mean().item())
        return output.mean()

    return {"model": nn.Linear(4, 1), "batch": {"x": torch.randn(3, 4)}, "loss_fn": loss_fn}


def batch_norm_and_dropout():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 2))

    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["x"]), batch["y"])

    return {"model": model, "batch": {"x": torch.randn(4, 4), "y": torch.tensor([0, 1, 0, 1])}, "loss_fn": loss_fn}


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.randn(4)
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return {"loss": self.head(x + self.table).mean()}


def attribute_is_another_rule():
    return {"model": Table(), "batch": {"x": torch.randn(3, 4)}}


def modules_that_the_loss_function_holds():
    teacher = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).requires_grad_(False)
    criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))

    def loss_fn(model, batch):
        logits = model(batch["x"])
        return criterion(logits, batch["y"]) + F.mse_loss(logits, teacher(batch["x"]))

    batch = {"x": torch.randn(5, 4), "y": torch.tensor([0, 1, 2, 0, 1])}
    return {"model": nn.Linear(4, 3), "batch": batch, "loss_fn": loss_fn}


DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_that_is_a_variable():
    def loss_fn(model, batch):
        weight = torch.tensor([1.0, 2.0, 3.0], device=DEVICE)
        return F.cross_entropy(model(batch["x"].to(DEVICE)), batch["y"].to(DEVICE), weight=weight)

    batch = {"x": torch.randn(5, 4), "y": torch.tensor([0, 1, 2, 0, 1])}
    return {"model": nn.Linear(4, 3), "batch": batch, "loss_fn": loss_fn}


class MovesItsTable(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = [torch.randn(4), torch.randn(4)]
        self.head = nn.Linear(4, 1)

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self.tables = [fn(table) for table in self.tables]
        return self

    def forward(self, x):
        return {"loss": self.head(x + self.tables[0] * self.tables[1]).mean()}


def tensors_that_a_module_moves_itself():
    return {"model": nn.Sequential(MovesItsTable()), "batch": torch.randn(3, 4), "loss_fn": lambda m, x: m(x)["loss"]}


class _Encoder(nn.Module):
    """`nn.TransformerEncoder` compares the mask with a causal one, which it makes itself."""

    def __init__(self, mask, **buffers):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.mask = mask
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(self, x):
        return {"loss": self.encoder(x, mask=self.mask(self, x)).square().mean()}


def _encoder(mask, **buffers):
    return {"model": _Encoder(mask, **buffers), "batch": {"x": torch.randn(3, 5, 8)}}


def causal_mask_on_the_device_of_the_data():
    square = nn.Transformer.generate_square_subsequent_mask
    return _encoder(lambda _, x: square(x.shape[1], device=x.device))


def causal_mask_on_a_device_that_is_a_variable():
    square = nn.Transformer.generate_square_subsequent_mask
    return _encoder(lambda _, x: square(x.shape[1], device=DEVICE))


def causal_mask_that_is_a_buffer():
    square = nn.Transformer.generate_square_subsequent_mask(6)
    return _encoder(lambda model, x: model.square[: x.shape[1], : x.shape[1]], square=square)


def boolean_mask_that_is_moved_before_use():
    return _encoder(lambda _, x: torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1).to(DEVICE))
