"""Episodes as images: an animated GIF of policies side by side, or a contact sheet for print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from labs.vla.picture import caption_font, draw_scene
from labs.vla.policy import Policy
from labs.vla.rollout import Predict, rollout
from labs.vla.tabletop import Scene, Tabletop

LAST_FRAME_SECONDS = 1.5
_GAP = 6
_PAPER = (250, 249, 246)
_INK = (38, 42, 51)
_TITLE_PIXELS = 30


@dataclass(frozen=True)
class Episode:
    """One closed-loop episode, scene by scene."""

    scenes: tuple[Scene, ...]
    success: bool
    distance: float
    """Metres to the named block at the end."""


def record(policy: Policy, seeds: Sequence[int], *, execute: int = 2, predict: Predict | None = None) -> list[Episode]:
    """Run one episode for each seed, as `rollout` does, and record its scenes."""
    return [_record_one(policy, seed, execute, predict) for seed in seeds]


def episode_gif(
    path: Path | str,
    policies: Policy | Mapping[str, Policy],
    *,
    seed: int = 10_000,
    execute: int = 2,
    width: int | None = None,
) -> Path:
    """Write one episode as an animated GIF; several named policies act side by side on the same table.

    `width` is the width of one picture in pixels (384 by default). An episode that ends earlier stays on its last
    picture.
    """
    named = {"": policies} if isinstance(policies, Policy) else dict(policies)
    if not named:
        raise ValueError("episode_gif was given no policy. Pass one, or a mapping of titles to policies.")
    episodes = {title: record(policy, [seed], execute=execute)[0] for title, policy in named.items()}
    length = max(len(episode.scenes) for episode in episodes.values())
    frames = [_side_by_side(episodes, step, width) for step in range(length)]
    return _save_gif(frames, Path(path))


def contact_sheet(
    path: Path | str,
    policies: Policy | Mapping[str, Policy],
    *,
    seeds: Sequence[int] = (10_000,),
    columns: int = 5,
    execute: int = 2,
    width: int = 192,
) -> Path:
    """Write episodes as one PNG: a row for each policy and seed, with `columns` moments from the first to the last."""
    named = {"": policies} if isinstance(policies, Policy) else dict(policies)
    rows = []
    for title, policy in named.items():
        for episode in record(policy, seeds, execute=execute):
            moments = np.linspace(0, len(episode.scenes) - 1, columns).round().astype(int)
            pictures = [_scaled(draw_scene(episode.scenes[moment]), width) for moment in moments]
            rows.append(_titled(_beside(pictures), title))
    sheet = Image.new("RGB", (max(row.width for row in rows), sum(row.height + _GAP for row in rows) - _GAP), _PAPER)
    top = 0
    for row in rows:
        sheet.paste(row, (0, top))
        top += row.height + _GAP
    path = Path(path)
    sheet.save(path)
    return path


def _record_one(policy: Policy, seed: int, execute: int, predict: Predict | None) -> Episode:
    scenes: list[Scene] = []

    def keep(_row: int, table: Tabletop) -> None:
        scenes.append(table.scene)

    result = rollout(policy, episodes=1, first_seed=seed, execute=execute, predict=predict, on_frame=keep)
    return Episode(tuple(scenes), bool(result.success[0]), float(result.distance[0]))


def _side_by_side(episodes: Mapping[str, Episode], step: int, width: int | None) -> Image.Image:
    columns = []
    for title, episode in episodes.items():
        scene = episode.scenes[min(step, len(episode.scenes) - 1)]
        columns.append(_titled(_scaled(draw_scene(scene), width), title))
    return _beside(columns)


def _scaled(picture: NDArray[np.uint8], width: int | None) -> Image.Image:
    image = Image.fromarray(picture)
    if width is None or width == image.width:
        return image
    return image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)


def _titled(image: Image.Image, title: str) -> Image.Image:
    if not title:
        return image
    framed = Image.new("RGB", (image.width, image.height + _TITLE_PIXELS), _PAPER)
    framed.paste(image, (0, _TITLE_PIXELS))
    draw = ImageDraw.Draw(framed)
    draw.text((8, _TITLE_PIXELS / 2), title, fill=_INK, font=caption_font(16), anchor="lm")
    return framed


def _beside(images: Sequence[Image.Image]) -> Image.Image:
    strip = Image.new("RGB", (sum(i.width + _GAP for i in images) - _GAP, max(i.height for i in images)), _PAPER)
    left = 0
    for image in images:
        strip.paste(image, (left, 0))
        left += image.width + _GAP
    return strip


def _save_gif(frames: Sequence[Image.Image], path: Path) -> Path:
    # One palette for all frames, taken from the last: a palette for each frame would make the table flicker.
    palette = frames[-1].quantize(colors=128)
    indexed = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    step = 1000 // Tabletop.metadata["render_fps"]
    durations = [step] * (len(frames) - 1) + [round(LAST_FRAME_SECONDS * 1000)]
    indexed[0].save(path, save_all=True, append_images=indexed[1:], duration=durations, loop=0, disposal=1)
    return path
