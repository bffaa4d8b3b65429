"""The attacks, read from attacks/*.toml, and the target of each: its own copy of a lab and of a workspace."""

from __future__ import annotations

import os
import pty
import shutil
import site
import socket
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from child_processes import HANG_S
from labs.grading import ForkServer, protections
from labs.grading.catalog import Lab
from sampling import first_of_each, parameters
from shared_server import SharedServer

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TOY = HERE.parent / "grading" / "toy" / "lab90_toy_offset"
GRANTED = {one.name for one in protections() if one.active}
with pytest.MonkeyPatch.context() as _patch:
    _patch.setenv("LAB_NO_NAMESPACES", "1")
    GRANTED_WITHOUT_NAMESPACES = {one.name for one in protections() if one.active}
CONTAINED = ("ending", "exhausting", "outliving", "reaching_out", "stalling")
"""The families whose result depends on the containment; the others are tried with namespaces only."""


@dataclass(frozen=True)
class Attack:
    """One thing a submission may try. `on_solution` is the verdict of an otherwise correct file that tries it."""

    family: str
    name: str
    does: str
    code: str
    place: str = "before"
    """`before` or `after` the rest of the file; an attack that replaces a function comes `after`."""
    on_solution: str = "failed"
    needs: str = ""
    """The protection without which the attack would harm the machine, or is documented as not stopped."""
    timeout_s: int = 10

    def on(self, text: str, target: Target) -> str:
        """The file that tries it."""
        code = self.code.replace("@WIRE@", (HERE / "attacks" / "wire.py").read_text())
        for word, value in target.words.items():
            code = code.replace(f"@{word}@", value)
        return f"{code}\n{text}" if self.place == "before" else f"{text}\n{code}"


@dataclass(frozen=True)
class Target:
    """What an attack is tried on: copies of the toy lab and of a workspace, and the words that its code may use."""

    lab: Lab
    workspace: Path
    words: dict[str, str]
    outside: tuple[int, ...]
    """Descriptors that become readable if the attack reaches the user's terminal or a server on the loopback."""
    marks: tuple[bytes, ...]
    """One of these texts is in the environment, the arguments or the folder of every process of a grade here."""

    def submit(self, text: str) -> None:
        """Make this the learner's file."""
        (self.workspace / "policy.py").write_text(text)

    def files(self) -> dict[str, bytes | None]:
        """Everything an attack could have written or changed, by path."""
        found: dict[str, bytes | None] = {}
        for folder in (self.workspace, self.lab.folder):
            found |= {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
        canary = self.words["CANARY"]
        places = [
            *self.words["SITE"].split(),
            self.words["HOME"],
            "/tmp",
            "/dev/shm",
            str(ROOT / "labs" / "grading" / "__pycache__"),
        ]
        for place in map(Path, places):
            found |= {str(path): None for path in place.glob(f"*{canary}*")}
        for single in (Path(self.words["SITE"]) / "sitecustomize.py", ROOT / "labs" / "grading" / "grader.py"):
            if single.exists():
                found[str(single)] = single.read_bytes()
        return found

    def processes(self) -> set[int]:
        """The living processes of grades made here, the fork servers among them."""
        living = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
        return {pid for pid in living if pid != os.getpid() and self._is(pid)}

    def _is(self, pid: int) -> bool:
        for what in ("environ", "cmdline", "cwd"):
            path = Path(f"/proc/{pid}/{what}")
            try:
                found = os.fsencode(path.readlink()) if what == "cwd" else path.read_bytes()
            except OSError:  # it has ended, or belongs to another user
                continue
            if any(mark in found for mark in self.marks):
                return True
        return False


class LabElsewhere(Lab, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A lab whose folder is not among the shipped ones."""

    place: str

    @property
    def folder(self) -> Path:
        return Path(self.place)


def all_attacks() -> list[Attack]:
    """Every attack of every family."""
    return [
        Attack(path.stem, name, **fields)
        for path in sorted((HERE / "attacks").glob("*.toml"))
        for name, fields in tomllib.loads(path.read_text()).items()
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "attack" not in metafunc.fixturenames:
        return
    fallback = "fallback_server" in metafunc.fixturenames
    attacks = [one for one in all_attacks() if not fallback or _contained_without_namespaces(one)]
    metafunc.parametrize(
        "attack",
        parameters(
            attacks,
            first_of_each(attacks, lambda one: one.family),
            name=lambda one: f"{one.family}-{one.name}",
            marks=lambda one: (
                pytest.mark.skipif(
                    bool(one.needs) and one.needs not in GRANTED, reason="this system lacks a protection"
                ),
            ),
        ),
    )


def _contained_without_namespaces(one: Attack) -> bool:
    return one.family in CONTAINED and (not one.needs or one.needs in GRANTED_WITHOUT_NAMESPACES)


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks that stall are ended by the wall clock: the time that a person asks for would only be waited."""
    monkeypatch.delenv("LAB_PATIENCE", raising=False)


@pytest.fixture(scope="session")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of every grade here; empty between grades."""
    return tmp_path_factory.mktemp("private")


@pytest.fixture(scope="session")
def server(private: Path) -> Iterator[SharedServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LAB_NO_NAMESPACES", raising=False)
        patch.setenv("TMPDIR", str(private))
        running = SharedServer()
    with running:
        yield running


@pytest.fixture(scope="session")
def fallback_server(private: Path) -> Iterator[ForkServer]:
    """A fork server as on a system that permits no namespaces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_NO_NAMESPACES", "1")
        patch.setenv("TMPDIR", str(private))
        running = ForkServer()
    with running:
        yield running


@pytest.fixture
def target(tmp_path: Path, private: Path) -> Iterator[Target]:
    lab, workspace = tmp_path / "lab90_toy_offset", tmp_path / "workspace"
    lab.mkdir()
    workspace.mkdir()
    for name in ("checks.py", "probe.py", "lab.toml"):
        shutil.copy(TOY / name, lab / name)
    fields = msgspec.toml.decode((lab / "lab.toml").read_bytes()) | {"place": str(lab)}
    terminal, theirs = pty.openpty()
    listening = socket.create_server(("127.0.0.1", 0))
    words = {
        "CANARY": f"vla-canary-{os.getpid()}-{tmp_path.name}",
        "OUTSIDE": str(workspace / "written_after_the_verdict"),
        "WORKSPACE": str(workspace),
        "LAB": str(lab),
        "ROOT": str(ROOT),
        "SITE": site.getsitepackages()[0],
        "HOME": str(Path.home()),
        "PORT": str(listening.getsockname()[1]),
        "TERMINAL": os.ttyname(theirs),
    }
    marks = (os.fsencode(private), os.fsencode(tmp_path))
    outside = (terminal, listening.fileno())
    yield Target(msgspec.convert(fields, LabElsewhere), workspace, words, outside, marks)
    listening.close()
    os.close(theirs)
    os.close(terminal)


@pytest.fixture(scope="session")
def starter() -> str:
    return (TOY / "policy.py").read_text()


@pytest.fixture(scope="session")
def solution() -> str:
    return (TOY / "solution.py").read_text()


@pytest.fixture(scope="session")
def attacks() -> list[Attack]:
    return all_attacks()


@pytest.fixture(scope="session")
def eventually() -> Callable[[Callable[[], bool]], bool]:
    """Whether something holds before a deadline that only bounds a hang."""

    def wait(holds: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + HANG_S
        while not holds():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    return wait


@pytest.fixture(scope="session")
def solution_file() -> Path:
    return TOY / "solution.py"
