"""The catalog of all labs, read from each `lab.toml`.

`lab list` imports this, so it needs neither torch nor transformers. `msgspec` decodes and validates: a key that is
misspelt, missing or of the wrong type is an error that names the key.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec

# Another collection, such as the tests' fixture labs, has the same layout: `<root>/labNN_slug`, `<root>/../solutions`.
LABS_ROOT = Path(os.environ.get("VLA_LABS_ROOT") or Path(__file__).parents[1]).resolve()
SOLUTIONS_ROOT = LABS_ROOT.parent / "solutions"

Chapter = Literal[
    "shapes",
    "gradients",
    "numerics",
    "data",
    "actions",
    "loop",
    "memory",
    "reproducibility",
    "distributed",
    "frameworks",
]
CHAPTERS: tuple[str, ...] = Chapter.__args__  # type: ignore[attr-defined]

_Seconds = Annotated[int, msgspec.Meta(ge=1, le=600)]
_Url = Annotated[str, msgspec.Meta(pattern=r"^https://")]


class Anchor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The documented case that a lab reproduces."""

    bug: str
    """What went wrong there, in one sentence."""
    project: str
    """The project in which it happened, as `owner/name`."""
    urls: tuple[_Url, ...]
    """The commits, issues or pull requests where it is documented; the first one is the main source."""
    general_pytorch: bool = False
    """True if the case is general PyTorch and not from a VLA; the lesson then mentions it."""


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A question that a measurement answers; the learner writes the answer into `answers.toml`."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]*$")]
    """The answer's name in `answers.toml`."""
    text: str
    """The question, one sentence."""
    measure: str
    """What to measure, one sentence; it follows "Not answered yet."."""
    form: Literal["name", "number", "choice"]
    """What the answer is: a name in the program, a number, or one of `choices`."""
    hint: str = ""
    """The format of a name or a number, such as: a module path such as `towers.vision.layers.0`."""
    unit: str = ""
    """The unit of a number."""
    choices: tuple[str, ...] = ()
    """The possible answers, if there are only a few."""


class Lab(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One lab, as declared in its `lab.toml`."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{2}$")]
    """Two digits; the tens digit is the chapter."""
    slug: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]*$")]
    """The fault's name; with the id it is the folder: `lab03_gripper_never_closes`."""
    title: str
    """The title in `lab list`. It describes the symptom, not the fault."""
    chapter: Chapter
    """One of the ten chapters."""
    difficulty: Annotated[int, msgspec.Meta(ge=1, le=3)]
    """Stars, 1 to 3."""
    minutes: Annotated[int, msgspec.Meta(ge=5, le=120)]
    """How long a learner takes."""
    loudness: Literal["loud", "silent"]
    """`loud` if it raises, `silent` if it only goes wrong."""
    symptom: str
    """What the user sees, without the reason."""
    prerequisites: tuple[str, ...] = ()
    """Ids of labs that teach what this lab requires."""
    editable: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("policy.py",)
    """The files a learner edits."""
    timeout_s: _Seconds = 60
    """Wall-clock limit of one whole grade, seconds."""
    memory_mb: Annotated[int, msgspec.Meta(ge=512, le=16384)] = 4096
    """Address space of any one process of the child, MiB, beyond what it has mapped after its own imports."""
    seeds: Annotated[tuple[int, ...], msgspec.Meta(min_length=2)]
    """Seeds that outcome checks draw from."""
    rules: tuple[str, ...] = ()
    """debugkit codes that must fire on the starter and stay silent on the solution."""
    anchor: Anchor
    """The documented case."""
    notes_topics: tuple[str, ...] = ()
    """Topics of the course notes this lab's lesson teaches."""
    extras: tuple[str, ...] = ()
    """Optional dependencies it needs beyond `labs`, e.g. `frameworks`."""
    questions: tuple[Question, ...] = ()
    """What the learner must also measure and write into `answers.toml`."""

    @property
    def name(self) -> str:
        """The folder's name, e.g. `lab03_gripper_never_closes`."""
        return f"lab{self.id}_{self.slug}"

    @property
    def folder(self) -> Path:
        """Where the shipped starter, probe and checks are."""
        return LABS_ROOT / self.name

    @property
    def solution(self) -> Path:
        """Where the shipped solution is."""
        return SOLUTIONS_ROOT / self.name

    @property
    def lesson(self) -> str:
        """The lesson's path below `docs/`, without its suffix."""
        return f"lessons/{self.chapter}/{self.id}_{self.slug}"


class CatalogError(Exception):
    """A lab's metadata is not valid; the message names the file and the problem."""


class UnknownLabError(Exception):
    """There is no lab of that number; the message lists the labs."""


def load(folder: Path) -> Lab:
    """Read and validate one lab folder. Raises CatalogError."""
    path = folder / "lab.toml"
    try:
        lab = msgspec.toml.decode(path.read_bytes(), type=Lab)
    except FileNotFoundError:
        raise CatalogError(f"{path} is missing: every lab folder has one.") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise CatalogError(f"{path}: {error}") from None
    if lab.name != folder.name:
        raise CatalogError(f"{path}: id and slug say the folder is {lab.name}, but it is {folder.name}.")
    return lab


@functools.cache
def all_labs() -> tuple[Lab, ...]:
    """Every lab, in the order of the curriculum. Raises CatalogError."""
    # A folder without lab.toml is a lab that is still being written; the others stay usable.
    return tuple(load(path.parent) for path in sorted(LABS_ROOT.glob("lab[0-9][0-9]_*/lab.toml")))


def find(number: str) -> Lab:
    """The lab named by `3`, `03`, `lab03` or `gripper_never_closes`. Raises UnknownLabError."""
    wanted = number.lower().removeprefix("lab")
    for lab in all_labs():
        if wanted in (lab.name, lab.slug, lab.name.removeprefix("lab")) or (
            wanted.isdigit() and int(wanted) == int(lab.id)
        ):
            return lab
    near = _nearest(wanted)
    if near is not None:
        raise UnknownLabError(f"There is no lab {number}. Did you mean `{near.id}`, {near.slug}?")
    there = ", ".join(lab.id for lab in all_labs()) or "none yet"
    raise UnknownLabError(f"There is no lab {number}. There are: {there}. `lab list` shows what each is about.")


def _nearest(wanted: str) -> Lab | None:
    """The lab whose slug is similar to the given name, or contains it: `griper_never_closes`, `gripper`."""
    from difflib import get_close_matches  # imported only for a mistyped name

    slugs = {lab.slug: lab for lab in all_labs()}
    holding = [slug for slug in slugs if len(wanted) >= 4 and wanted in slug]
    near = holding or get_close_matches(wanted.lstrip("0123456789_"), slugs, n=1)
    return slugs[near[0]] if near else None
