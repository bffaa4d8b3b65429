"""One healthy program from a seed: which form of each part, which names, and the text of both files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from string import Template

from labs.mystery import encoder_parts, head_parts, policy_parts, tokenizer_parts, train_parts
from labs.mystery.names import draw_names

FILES = ("policy.py", "train.py")
DIMENSIONS: dict[str, tuple[str, ...]] = {
    "tokenizer": tuple(tokenizer_parts.TOKENIZERS),
    "padding": tokenizer_parts.SIDES,
    "pixels": tuple(policy_parts.PIXELS),
    "tower": tuple(encoder_parts.TOWERS),
    "text": tuple(encoder_parts.TEXTS),
    "fusion": tuple(head_parts.FUSIONS),
    "head": tuple(head_parts.HEADS),
    "scaler": tuple(policy_parts.SCALERS),
    "runner": tuple(policy_parts.RUNNERS),
    "windows": tuple(train_parts.WINDOWS),
    "optimizer": tuple(train_parts.OPTIMIZERS),
    "scheduler": tuple(train_parts.SCHEDULERS),
    "loop": tuple(train_parts.TRAINERS),
    "precision": tuple(train_parts.LOSS),
}
"""In what programs differ besides their names and sizes, and the forms of each."""


@dataclass(frozen=True)
class Program:
    """A composed program: its forms by dimension, its names, and the text of its files."""

    forms: Mapping[str, str]
    names: Mapping[str, str]
    files: Mapping[str, str]

    def filled(self, template: str) -> str:
        """A template with this program's names."""
        return Template(template).substitute(self.names)


_PRECISION = {
    "float32": "",
    "bfloat16": "\n\n    The loss is computed in bfloat16, the parameters stay in float32.\n    ",
}


def compose(random: Random) -> Program:
    """Draw a program."""
    forms = {name: random.choice(options) for name, options in DIMENSIONS.items()}
    names = draw_names(random)
    names["the_padding"] = forms["padding"]
    names["the_width"] = str(random.choice((16, 24)))
    names["the_horizon"] = str(random.choice((4, 5, 6)))
    names["the_rate"] = random.choice(("3e-3", "2e-3", "5e-3"))
    names["the_norm"] = random.choice(("1.0", "0.5", "0.2"))
    names["more_fields"] = train_parts.MORE_FIELDS[forms["loop"]]
    names["precision"] = _PRECISION[forms["precision"]]
    names["loss"] = train_parts.LOSS[forms["precision"]]
    texts = {"policy.py": _policy(forms), "train.py": _train(forms)}
    return Program(forms, names, {file: Template(text).substitute(names) for file, text in texts.items()})


def _policy(forms: Mapping[str, str]) -> str:
    texts = encoder_parts.TEXTS if forms["padding"] == "right" else encoder_parts.TEXTS_FROM_THE_LEFT
    parts = (
        policy_parts.CONFIG,
        tokenizer_parts.TOKENIZERS[forms["tokenizer"]][forms["padding"]],
        policy_parts.PIXELS[forms["pixels"]],
        encoder_parts.TOWERS[forms["tower"]],
        texts[forms["text"]],
        head_parts.FUSIONS[forms["fusion"]],
        head_parts.HEADS[forms["head"]],
        policy_parts.SCALERS[forms["scaler"]],
        policy_parts.POLICY,
        policy_parts.RUNNERS[forms["runner"]],
    )
    plain = ["from collections.abc import Sequence", "from dataclasses import dataclass"]
    if forms["runner"] != "smooth":
        plain.insert(0, "from collections import deque")
    others = ["from torch import Tensor, nn"]
    if forms["text"] == "llama":
        others.insert(0, "from labs.vla.language_model import position_ids_from_mask")
    wanted = []
    if forms["text"] == "llama":
        wanted += ["LlamaConfig", "LlamaModel"]
    if forms["tower"] == "siglip":
        wanted += ["SiglipVisionConfig", "SiglipVisionModel"]
    if wanted:
        others.append(f"from transformers import {', '.join(wanted)}")
    modules = ["import torch", "import torch.nn.functional as F"]
    return _joined(policy_parts.HEADER, plain, [*modules, *others], parts)


def _train(forms: Mapping[str, str]) -> str:
    parts = (
        train_parts.RECIPE,
        train_parts.READ_RECIPE,
        train_parts.WINDOWS[forms["windows"]],
        train_parts.ORDER,
        train_parts.OPTIMIZERS[forms["optimizer"]],
        train_parts.SCHEDULERS[forms["scheduler"]],
        train_parts.TRAINERS[forms["loop"]],
        train_parts.EVALUATE,
        train_parts.COMBINE,
    )
    modules = ["import copy"] if forms["loop"] == "average" else []
    modules += ["import math"] if forms["scheduler"] == "cosine" else []
    plain = ["from collections.abc import Iterable, Mapping, Sequence", "from dataclasses import asdict, dataclass"]
    if forms["windows"] == "repeats":
        plain = ["from bisect import bisect_right", *plain, "from itertools import accumulate"]
    plain += ["from typing import Any"]
    others = ["import torch"] + (["import torch.nn.functional as F"] if forms["windows"] == "zeros" else [])
    others += ["from torch import Tensor, nn", "from torch.optim.lr_scheduler import LambdaLR"]
    others += ["from torch.utils.data import Dataset"]
    return _joined(train_parts.HEADER, [*modules, *plain], others, parts)


def _joined(header: str, standard: list[str], others: list[str], parts: tuple[str, ...]) -> str:
    head = [header, "from __future__ import annotations\n", "\n".join(standard) + "\n", "\n".join(others) + "\n"]
    first, *rest = (part.strip("\n") + "\n" for part in parts)
    return "\n".join(head) + "\n" + "\n\n".join([first, *rest])
