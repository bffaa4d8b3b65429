"""Make the picture on the home page: lab 41 as shipped and fixed, the same training and the same episode.

python docs/_hero.py        # about 20 CPU seconds; writes docs/assets/hero.png, and the last moments as hero_phone.png
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from PIL import Image, ImageDraw

from labs.grading.catalog import find
from labs.vla.dataset import demonstrations
from labs.vla.film import contact_sheet, record
from labs.vla.picture import TABLE_PIXELS, caption_font, draw_scene
from labs.vla.policy import Policy
from labs.vla.rollout import rollout
from labs.vla.tabletop import Tabletop
from labs.vla.training import fit

PICTURE = Path(__file__).resolve().parent / "assets" / "hero.png"
PHONE = PICTURE.with_name("hero_phone.png")
LAB = "41"
FRAMES, STEPS, SEED = 8_000, 150, 0
EPISODES, FIRST_EPISODE = 50, 10_000
LETTERS, LINE, GAP = 30, 42, 16
"""Pixels of a picture that a phone shows at two fifths of its size: the letters are 12 pixels there."""
PAPER, INK = (250, 249, 246), (38, 42, 51)


def main() -> int:
    """Train both from the same seed, roll out, film one episode. Returns 1 if the picture would show no difference."""
    torch.set_num_threads(1)
    lab = find(LAB)
    captioned, ends, reached = {}, {}, []
    for title, folder in {"as shipped": lab.folder, "fixed": lab.solution}.items():
        policy, losses = _trained(folder / "policy.py")
        success = rollout(policy, episodes=EPISODES, first_seed=FIRST_EPISODE).success_rate
        reached.append(round(EPISODES * success))
        caption = f"{title}:  loss {losses[0]:.2f} to {losses[-1]:.2f},  {reached[-1]} of {EPISODES} blocks reached"
        captioned[caption] = policy
        ends[title, *caption.partition(":  ")[2].split(",  ")] = policy
        typer.echo(caption)
    if reached[1] - reached[0] < EPISODES / 2:
        typer.echo("The two policies do not differ enough to show it in a picture. Nothing was written.", err=True)
        return 1
    contact_sheet(PICTURE, captioned, seeds=(_far_episode(),), columns=4, width=256)
    _last_moments(ends).save(PHONE)
    typer.echo(f"written: {PICTURE} and {PHONE.name}")
    return 0


def _last_moments(policies: dict[tuple[str, ...], Policy]) -> Image.Image:
    """The end of the episode with each policy, side by side below its lines."""
    heading = LINE * max(map(len, policies))
    width = len(policies) * (TABLE_PIXELS + GAP) - GAP
    sheet = Image.new("RGB", (width, heading + TABLE_PIXELS), PAPER)
    draw = ImageDraw.Draw(sheet)
    for at, (lines, policy) in enumerate(policies.items()):
        left = at * (TABLE_PIXELS + GAP)
        for row, line in enumerate(lines):
            draw.text((left, LINE * (row + 0.5)), line, fill=INK, font=caption_font(LETTERS), anchor="lm")
        scene = record(policy, (_far_episode(),))[0].scenes[-1]
        table = Image.fromarray(draw_scene(scene)).crop((0, 0, TABLE_PIXELS, TABLE_PIXELS))
        sheet.paste(table, (left, heading))
    return sheet


def _far_episode() -> int:
    """The first episode whose arm starts more than half a table from its block: there is something to see."""
    table = Tabletop()
    for seed in range(FIRST_EPISODE, FIRST_EPISODE + EPISODES):
        table.reset(seed=seed)
        if np.linalg.norm(table.scene.blocks[table.scene.target] - table.scene.arm) > 0.5:
            return seed
    return FIRST_EPISODE


def _trained(path: Path) -> tuple[Policy, list[float]]:
    policy_file = _module(path)
    frames = demonstrations(FRAMES, seed=SEED)
    policy = policy_file.build_policy(frames, SEED)
    return policy, fit(policy, frames, steps=STEPS, seed=SEED)


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"hero_{path.parent.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
