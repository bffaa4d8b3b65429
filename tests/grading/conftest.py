"""The toy lab: small, real, fast; used wherever a test needs something to grade."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from labs.grading.catalog import Lab

TOY = Path(__file__).parent / "toy" / "lab90_toy_offset"


class LabElsewhere(Lab, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A lab whose folder is not among the shipped ones."""

    place: str

    @property
    def folder(self) -> Path:
        return Path(self.place)


def lab_at(folder: Path, **changes: object) -> LabElsewhere:
    """The toy lab's metadata, with another folder and other values."""
    data = msgspec.toml.decode((TOY / "lab.toml").read_bytes()) | changes
    return msgspec.convert(data | {"place": str(folder)}, LabElsewhere)


@pytest.fixture(scope="session")
def toy() -> Lab:
    return lab_at(TOY)


@pytest.fixture(scope="session")
def toy_with() -> Callable[..., Lab]:
    """The toy lab with other metadata: `toy_with(timeout_s=2)`."""
    return lambda **changes: lab_at(TOY, **changes)


@pytest.fixture(scope="session")
def summed() -> dict[str, str]:
    """The wrong fix that the toy lab recognises."""
    return {"policy.py": (TOY / "summed.py").read_text()}


@pytest.fixture(scope="session")
def starter() -> dict[str, str]:
    return {"policy.py": (TOY / "policy.py").read_text()}


@pytest.fixture(scope="session")
def solution() -> dict[str, str]:
    return {"policy.py": (TOY / "solution.py").read_text()}


@pytest.fixture
def lab_with(tmp_path: Path) -> Callable[..., Lab]:
    """The toy lab with another checks.py, to see what the grader makes of it."""

    def make(checks: str, **changes: object) -> Lab:
        folder = tmp_path / "lab90_toy_offset"
        folder.mkdir(exist_ok=True)
        (folder / "probe.py").write_text((TOY / "probe.py").read_text())
        (folder / "checks.py").write_text("from labs.grading import check, expect, wrong_fix\nimport pytest\n" + checks)
        return lab_at(folder, **changes)

    return make
