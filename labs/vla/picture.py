"""The tabletop drawn for viewers: six times the camera's resolution, with shadows, gripper fingers and a caption.

The policy never receives these pictures; it gets the 64 × 64 camera image that `tabletop.camera_images` draws.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from labs.vla.language import COLOURS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from labs.vla.tabletop import Scene

TABLE_PIXELS = 384
CAPTION_PIXELS = 48
_OVERSAMPLE = 2
_BLOCK_SIDE = 9 / 63
"""As in the camera image: 9 of 64 pixels."""

_INK = (38, 42, 51)
_PAPER = (250, 249, 246)
_BLOCK_RGB = {"red": (214, 64, 58), "green": (62, 166, 92), "blue": (66, 104, 214), "yellow": (236, 196, 62)}

RGB = tuple[int, int, int]


def draw_scene(scene: Scene, title: str | None = None) -> NDArray[np.uint8]:
    """Draw the table from above: uint8 (432, 384, 3). `title` replaces the instruction in the caption."""
    table = _table().copy()
    for layer in (_blocks(scene), _gripper(scene)):
        table = Image.alpha_composite(table, _shadow_of(layer))
        table = Image.alpha_composite(table, layer)
    small = table.convert("RGB").resize((TABLE_PIXELS, TABLE_PIXELS), Image.Resampling.LANCZOS)
    picture = Image.new("RGB", (TABLE_PIXELS, TABLE_PIXELS + CAPTION_PIXELS), _PAPER)
    picture.paste(small, (0, 0))
    _write_caption(picture, scene, title or scene.instruction)
    return np.asarray(picture)


def _pixel(metres: NDArray[np.floating]) -> tuple[float, float]:
    """Table coordinates to oversampled pixels, with a margin so that a block at the edge is fully visible."""
    side = TABLE_PIXELS * _OVERSAMPLE
    x, y = (0.05 + 0.9 * np.asarray(metres)) * side
    return float(x), float(y)


@cache
def _table() -> Image.Image:
    """A wooden table top: broad grain along x, a little darker towards the edges. Drawn once, from a fixed seed."""
    side = TABLE_PIXELS * _OVERSAMPLE
    rng = np.random.default_rng(7)
    rows = np.convolve(rng.normal(size=side + 24), np.ones(25) / 25, mode="valid")[:, None]  # (S, 1)
    fine = rng.normal(size=(side, side // 48)).repeat(48, axis=1)
    across = np.linspace(-1, 1, side)
    vignette = across[:, None] ** 4 + across[None, :] ** 4
    light = 1 + 0.10 * rows + 0.006 * fine - 0.05 * vignette  # (S, S)
    rgb = np.clip(light[..., None] * np.array([222, 205, 180]), 0, 255).astype(np.uint8)
    return Image.fromarray(rgb).convert("RGBA")


def _blocks(scene: Scene) -> Image.Image:
    layer, draw = _layer()
    half = 0.9 * _BLOCK_SIDE * TABLE_PIXELS * _OVERSAMPLE / 2
    for block, colour in zip(scene.blocks, scene.colours, strict=True):
        x, y = _pixel(block)
        rgb = _BLOCK_RGB[COLOURS[colour]]
        # A darker block and a lighter face on top, shifted up and to the left, where the light comes from.
        draw.rounded_rectangle((x - half, y - half, x + half, y + half), radius=9, fill=_shade(rgb, 0.72))
        face = (x - half + 1, y - half + 1, x + half - 9, y + half - 9)
        draw.rounded_rectangle(face, radius=8, fill=rgb, outline=_shade(rgb, 1.18), width=3)
    return layer


def _gripper(scene: Scene) -> Image.Image:
    """Two fingers and a palm from above, on an arm that enters from below; the fingers are apart while open."""
    layer, draw = _layer()
    x, y = _pixel(scene.arm)
    gap = 12 if scene.gripper > 0 else 34
    side = TABLE_PIXELS * _OVERSAMPLE
    steel, dark = (92, 98, 110), (58, 62, 72)
    draw.line((side / 2, side + 20, x, y + 62), fill=(*steel, 255), width=30)
    draw.line((side / 2, side + 20, x, y + 62), fill=(*_shade(steel, 1.25), 255), width=10)
    draw.rounded_rectangle((x - 50, y + 38, x + 50, y + 72), radius=12, fill=dark)
    for finger in (x - gap, x + gap):
        draw.rounded_rectangle((finger - 8, y - 26, finger + 8, y + 52), radius=7, fill=steel)
        draw.rounded_rectangle((finger - 8, y - 26, finger + 8, y - 8), radius=7, fill=_INK)
    draw.ellipse((x - 4, y - 4, x + 4, y + 4), fill=_PAPER, outline=_INK, width=2)
    return layer


def _layer() -> tuple[Image.Image, ImageDraw.ImageDraw]:
    side = TABLE_PIXELS * _OVERSAMPLE
    layer = Image.new("RGBA", (side, side), (0, 0, 0, 0))
    return layer, ImageDraw.Draw(layer)


def _shadow_of(layer: Image.Image) -> Image.Image:
    shape = layer.getchannel("A").point(lambda alpha: alpha * 0.38)
    shadow = Image.new("RGBA", layer.size, (0, 0, 0, 0))
    shadow.paste((30, 20, 10, 255), (9, 12), shape)
    return shadow.filter(ImageFilter.GaussianBlur(7))


def _write_caption(picture: Image.Image, scene: Scene, text: str) -> None:
    draw = ImageDraw.Draw(picture)
    middle = TABLE_PIXELS + CAPTION_PIXELS / 2
    colour = _BLOCK_RGB[COLOURS[scene.colours[scene.target]]]
    draw.rounded_rectangle((16, middle - 8, 32, middle + 8), radius=3, fill=colour)
    draw.text((44, middle), text, fill=_INK, font=caption_font(19), anchor="lm")
    held = scene.held_block()
    if held is not None:
        verdict, ink = ("reached", (44, 130, 70)) if held == scene.target else ("wrong block", (190, 50, 44))
        draw.text((TABLE_PIXELS - 16, middle), verdict, fill=ink, font=caption_font(17), anchor="rm")


@cache
def caption_font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's built-in font at `size` pixels: no system font is used, so pictures are the same everywhere."""
    return ImageFont.load_default(size)


def _shade(rgb: RGB, factor: float) -> RGB:
    red, green, blue = (min(255, int(channel * factor)) for channel in rgb)
    return red, green, blue
