"""Loads without `strict` that load what they should."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, state):
        return self.head(self.tower(state))


class RenamesOldKeys(Policy):
    """Reads the files of an older version, whose keys it renames while it loads."""

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        for name in [name for name in state_dict if name.startswith(f"{prefix}encoder.")]:
            state_dict[name.replace("encoder.", "tower.", 1)] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _program(load, policy=Policy, **more):
    model = policy()

    def loop(model, optimizer):
        load(model)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()

    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "loop": loop, **more}


def backbone_without_its_head():
    def load(model):
        saved = {name: value for name, value in Policy().state_dict().items() if not name.startswith("head.")}
        model.load_state_dict(saved, strict=False)

    return _program(load)


def other_names_are_tried_when_the_first_do_not_match():
    def load(model):
        saved = {f"module.{name}": value for name, value in Policy().state_dict().items()}
        missing, _ = model.load_state_dict(saved, strict=False)
        if missing:
            model.load_state_dict({name.removeprefix("module."): value for name, value in saved.items()}, strict=False)

    return _program(load)


def strictly_at_the_second_try():
    def load(model):
        saved = {f"module.{name}": value for name, value in Policy().state_dict().items()}
        model.load_state_dict(saved, strict=False)
        model.load_state_dict({name.removeprefix("module."): value for name, value in saved.items()})

    return _program(load, expect={"not_examined": "Nothing was loaded with `strict=False`"})


def keys_of_an_older_version():
    def load(model):
        saved = {
            name.replace("tower.", "encoder."): value
            for name, value in Policy().state_dict().items()
            if name.startswith("tower.")
        }
        model.load_state_dict(saved, strict=False)

    return _program(load, policy=RenamesOldKeys)


def statistics_for_a_module_without_tensors():
    def load(model):
        model.tower[1].load_state_dict(Policy().state_dict(), strict=False)

    return _program(load)


def nothing_to_load():
    def load(model):
        model.load_state_dict({}, strict=False)

    return _program(load, expect={"not_examined": "Nothing was loaded"})


def nothing_is_loaded():
    return _program(lambda _model: None, expect={"not_examined": "Nothing was loaded"})
