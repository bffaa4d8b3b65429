"""Models that hold what their checkpoint holds."""

import tempfile
from pathlib import Path

import torch
from torch import nn

import debugkit


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision_tower = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return {"loss": self.head(self.vision_tower(x)).square().mean()}


def _program(model, checkpoint, fresh=(), **more):
    declare = debugkit.Declare(checkpoint=checkpoint, fresh=fresh)
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "declare": declare, **more}


def _loaded():
    saved, model = Policy().state_dict(), Policy()
    model.load_state_dict(saved)
    return model, {name: tensor.clone() for name, tensor in saved.items()}


def everything_loaded():
    return _program(*_loaded())


def read_from_a_file():
    model, saved = _loaded()
    path = Path(tempfile.mkdtemp()) / "policy.pt"
    torch.save({"state_dict": saved}, path)
    return _program(model, path)


def read_from_safetensors():
    from safetensors.torch import save_file

    model, saved = _loaded()
    path = Path(tempfile.mkdtemp()) / "policy.safetensors"
    save_file(saved, path)
    return _program(model, str(path))


def fresh_head_declared():
    model, saved = _loaded()
    model.head = nn.Linear(4, 3)
    return _program(model, {n: t for n, t in saved.items() if "head" not in n}, fresh=("head.*",))


def tied_key_saved_once():
    model = Policy()
    model.words = nn.Linear(4, 3)
    model.words.weight, model.words.bias = model.head.weight, model.head.bias
    return _program(model, {n: t.clone() for n, t in model.state_dict().items() if "words" not in n})


def half_precision():
    model, saved = _loaded()
    return _program(model.bfloat16(), saved) | {"batch": {"x": torch.randn(5, 3, dtype=torch.bfloat16)}}


def adapters_around_the_loaded_layers():
    from peft import LoraConfig, get_peft_model

    model, saved = _loaded()
    return _program(get_peft_model(model, LoraConfig(target_modules=["head"])), saved, fresh=("*lora_*",))


def trained_since_it_was_loaded():
    model, saved = _loaded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.randn(5, 3))["loss"].backward()
    optimizer.step()
    return _program(model, saved, optimizer=optimizer)


def no_checkpoint_declared():
    return _program(Policy(), None, expect={"not_examined": "not declared"})


def file_that_is_not_there():
    return _program(Policy(), "/nowhere/policy.pt", expect={"not_examined": "is not a file"})
