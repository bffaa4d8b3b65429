"""Figures of lesson 06, from real runs: `lab dev figures 06`."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from labs.authoring.plots import BROKEN, COLOURS, FIXED, REFERENCE, broken_and_fixed, new_figure, save
from labs.grading.catalog import find
from labs.vla.language import PAD_ID

LONGEST = 30
SHOWN = (3, 7, 8, 12)


def figures(out: Path) -> None:
    """The placeholders of a prompt by the length of its instruction, and what four prompts consist of."""
    modules = broken_and_fixed(find("06"))
    starter = modules["as shipped"]
    figure, axes = new_figure("Placeholders in a prompt", "words of the instruction", "placeholders")
    for cameras, name, colour in ((2, "two cameras", COLOURS["as shipped"]), (1, "one camera", REFERENCE)):
        counts = [_prompt(starter, words, cameras).count(starter.IMAGE_ID) for words in range(1, LONGEST + 1)]
        axes.plot(range(1, LONGEST + 1), counts, color=colour, label=name)
    axes.set_ylim(0, 35)
    axes.legend(loc="lower left")
    save(figure, out / "06_places.svg")
    _prompts(modules, out / "06_prompts.svg")


def _prompts(modules: dict[str, ModuleType], path: Path) -> None:
    figure, axes = new_figure("Prompts of two cameras", "token", "")
    rows = [(name, module, words) for name, module in modules.items() for words in SHOWN]
    kinds = {"image": FIXED, "words": REFERENCE, "place missing": BROKEN}
    for row, (_, module, words) in enumerate(rows):
        prompt = _prompt(module, words, cameras=2)
        for at, token in enumerate(prompt):
            if token != PAD_ID:
                kind = "image" if token == module.IMAGE_ID else "words"
                axes.barh(row, 0.9, left=at, color=kinds[kind], height=0.7)
        missing = 2 * module.PATCHES - prompt.count(module.IMAGE_ID)
        axes.barh([row] * missing, 0.9, left=range(len(prompt), len(prompt) + missing), color=BROKEN, height=0.7)
    axes.axvline(len(prompt), color=REFERENCE, linewidth=0.8)
    axes.set_yticks(range(len(rows)), [f"{name}, {words} words" for name, _, words in rows])
    axes.invert_yaxis()
    for kind, colour in kinds.items():
        axes.barh(0, 0, color=colour, label=kind)
    figure.legend(loc="outside lower center", ncols=len(kinds))
    save(figure, path)


def _prompt(module: ModuleType, words: int, cameras: int) -> list[int]:
    """The ids of a prompt with so many words."""
    ids, _ = module.encode_prompts([" ".join(["now"] * words)], cameras)
    prompt: list[int] = ids[0].tolist()
    return prompt
