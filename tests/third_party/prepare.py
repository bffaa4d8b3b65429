"""Recipes that make the working folder of a script: small synthetic data in place of what it would download."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

TEXT = "the robot arm moves a red cup to left right box table and then stops near it again slowly"
WORDS = TEXT.split()
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
ROBOMIMIC = "robomimic-0.3.0"


def results_folder(folder: Path, _fetched: Path) -> None:
    """An empty folder `results`."""
    (folder / "results").mkdir()


def sine_waves(folder: Path, _fetched: Path) -> None:
    """`traindata.pt`: 20 sine waves of 40 points, a NumPy array as the project's generator writes it."""
    phases = np.random.RandomState(2).randint(-80, 80, 20)[:, None]
    torch.save(np.sin((np.arange(40)[None] + phases) / 20.0).astype("float64"), folder / "traindata.pt")


def words(folder: Path, _fetched: Path) -> None:
    """`data/train.txt`: 400 lines of words."""
    (folder / "data").mkdir()
    draw = random.Random(0)
    lines = [" ".join(draw.choices(WORDS, k=12)) for _ in range(400)]
    (folder / "data" / "train.txt").write_text("\n".join(lines), encoding="utf-8")


def wikitext(folder: Path, _fetched: Path) -> None:
    """`data/wikitext-2.txt`: enough words for 4200 sequences of 35."""
    (folder / "data").mkdir()
    draw = random.Random(0)
    lines = [" ".join(draw.choices(WORDS, k=35)) for _ in range(4200)]
    (folder / "data" / "wikitext-2.txt").write_text("\n".join(lines), encoding="utf-8")


def lines(folder: Path, _fetched: Path) -> None:
    """`input.txt`: 2000 lines of words, with the letters of the text that minGPT's chargpt continues."""
    draw = random.Random(0)
    made = [" ".join(draw.choices([*WORDS, "O God,", "O God!"], k=12)) for _ in range(2000)]
    (folder / "input.txt").write_text("\n".join(made), encoding="utf-8")


def letters(folder: Path, fetched: Path) -> None:
    """`data/shakespeare_char`: the lines as nanoGPT's prepare.py writes them, a number per letter; its configurator."""
    lines(folder, fetched)
    text = (folder / "input.txt").read_text(encoding="utf-8")
    known = sorted(set(text))
    numbers = np.array([known.index(letter) for letter in text], dtype=np.uint16)
    made = folder / "data" / "shakespeare_char"
    made.mkdir(parents=True)
    start = int(0.9 * len(numbers))
    numbers[:start].tofile(made / "train.bin")
    numbers[start:].tofile(made / "val.bin")
    (made / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": len(known)}))
    shutil.copy(fetched / "karpathy__nanoGPT" / "configurator.py", folder)


def tiny_bert(folder: Path, _fetched: Path) -> None:
    """`bert-base-cased`: a BERT of two layers of width 32 with random weights, and a tokenizer of whole words."""
    from transformers import BertConfig, BertForSequenceClassification

    home = folder / "bert-base-cased"
    home.mkdir()
    (home / "vocab.txt").write_text("\n".join(TOKENS), encoding="utf-8")
    _save_tokenizer(home)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(TOKENS), max_position_embeddings=64, **shape)
    BertForSequenceClassification(config).save_pretrained(home)


def tiny_llama(folder: Path, _fetched: Path) -> None:
    """`tiny-llama`: a Llama of two layers of width 64 with random weights, and a tokenizer of whole words."""
    from transformers import LlamaConfig, LlamaForCausalLM

    home = folder / "tiny-llama"
    _save_tokenizer(home, eos_token="[SEP]")
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
    }
    ends: dict[str, Any] = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
    config = LlamaConfig(vocab_size=len(TOKENS), max_position_embeddings=256, **shape, **ends)
    LlamaForCausalLM(config).save_pretrained(home)


def _save_tokenizer(home: Path, **options: str) -> None:
    """A tokenizer of whole words."""
    from transformers import BertTokenizer

    BertTokenizer(vocab={word: at for at, word in enumerate(TOKENS)}, **options).save_pretrained(home)


def demonstrations(folder: Path, fetched: Path) -> None:
    """`demonstrations.hdf5`: 20 episodes of 60 steps in robomimic's format; also where its examples look for one."""
    made = folder / "demonstrations.hdf5"
    _write_demonstrations(made)
    assets = fetched / ROBOMIMIC / "tests" / "assets"
    assets.mkdir(parents=True, exist_ok=True)
    (assets / "test_v141.hdf5").write_bytes(made.read_bytes())
    for template in sorted((fetched / ROBOMIMIC / "robomimic" / "exps" / "templates").glob("*.json")):
        config: dict[str, Any] = json.loads(template.read_text(encoding="utf-8"))
        config["train"] |= {"data": str(made), "output_dir": str(folder / "trained"), "num_epochs": 2, "cuda": False}
        if template.stem in ("gl", "hbc"):
            config["train"]["seq_length"] = 10  # a subgoal is so many steps ahead
        config["experiment"] |= {"epoch_every_n_steps": 25, "render_video": False}
        config["experiment"]["rollout"]["enabled"] = False
        config["experiment"]["save"]["enabled"] = False
        (folder / template.name).write_text(json.dumps(config), encoding="utf-8")


def _write_demonstrations(path: Path) -> None:
    import h5py

    draw = np.random.RandomState(0)
    widths = {"robot0_eef_pos": 3, "robot0_eef_quat": 4, "robot0_gripper_qpos": 2, "object": 10}
    with h5py.File(path, "w") as file:
        group = file.create_group("data")
        env = {"env_name": "Lift", "env_version": "1.4.1", "type": 1, "env_kwargs": {}}
        group.attrs.update({"total": 20 * 60, "env_args": json.dumps(env)})
        for episode in range(20):
            demo = group.create_group(f"demo_{episode}")
            demo.attrs["num_samples"] = 60
            place = np.cumsum(draw.uniform(-0.02, 0.02, (61, 19)), axis=0) + draw.uniform(-0.5, 0.5, 19)
            demo["actions"] = np.clip(np.diff(place[:, :7], axis=0) * 20, -1, 1)
            demo["states"], demo["rewards"] = place[:-1], np.eye(1, 60, 59)[0]
            demo["dones"] = np.eye(1, 60, 59, dtype=np.int64)[0]
            demo["obs/flat"], demo["next_obs/flat"] = place[:-1], place[1:]
            start = 0
            for name, width in widths.items():
                demo[f"obs/{name}"] = place[:-1, start : start + width]
                demo[f"next_obs/{name}"] = place[1:, start : start + width]
                start += width


RECIPES: dict[str, Callable[[Path, Path], None]] = {
    recipe.__name__: recipe
    for recipe in (results_folder, sine_waves, words, wikitext, lines, letters, tiny_bert, tiny_llama, demonstrations)
}
