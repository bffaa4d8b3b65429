"""The installed wheel has everything that a lab needs, no tests, and grades a fix."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from child_processes import run
from labs.grading import catalog

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Installed:
    """A virtual environment that has the wheel, and an empty folder to work in."""

    environment: Path
    work: Path

    @property
    def packages(self) -> Path:
        """Its site-packages."""
        (found,) = self.environment.glob("lib/python3*/site-packages")
        return found

    def run(self, program: str, *arguments: str, at: Path | None = None) -> subprocess.CompletedProcess[str]:
        """One of its programs, in `at`, without anything of this checkout in the environment."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VLA_", "PYTEST_"))}
        settings = {"HOME": str(self.work), "XDG_DATA_HOME": str(self.work / "data"), "OMP_NUM_THREADS": "1"}
        return run(
            [str(self.environment / "bin" / program), *arguments],
            cwd=at or self.work,
            env=kept | settings,
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    pytest.importorskip("hatchling", reason="the build backend is in the extra `dev`")
    folder = tmp_path_factory.mktemp("wheel")
    done = run([sys.executable, "-c", BUILD, str(folder)], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in a virtual environment elsewhere, which borrows torch and the rest from the one that runs this."""
    made = Installed(tmp_path_factory.mktemp("fresh") / "venv", tmp_path_factory.mktemp("work"))
    venv.create(made.environment, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(made.environment / "bin" / "python")]
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    done = run([*pip, "install", *options, str(wheel)])
    assert done.returncode == 0, done.stderr
    # A path file only appends: the wheel comes first, and the editable install's own path file is not read.
    borrowed = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (made.packages / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
    return made


def test_the_wheel_has_all_that_labs_need_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"labs/vla/base.safetensors", "debugkit/py.typed"} <= names
    for lab in catalog.all_labs():
        of_lab = {path.relative_to(ROOT).as_posix() for path in _shipped(lab.folder, lab.solution)}
        needed = {
            f"labs/{lab.name}/{name}" for name in (*lab.editable, "probe.py", "checks.py", "hints.md", "lab.toml")
        }
        assert needed <= of_lab
        assert of_lab <= names, f"lab {lab.id} lacks {sorted(of_lab - names)}"
    assert {name.split("/")[0].partition("-")[0] for name in names} == {
        "debugkit",
        "labs",
        "solutions",
        "vla_debug_lab",
    }
    assert not [name for name in names if "/test_" in name or name.endswith((".pyc", "conftest.py"))]


def _shipped(*folders: Path) -> list[Path]:
    return [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    ]


def test_both_programs_run_from_the_wheel_and_not_from_the_checkout(installed: Installed) -> None:
    where = installed.run("python", "-c", "import labs, debugkit; print(labs.__file__, debugkit.__file__)")
    assert where.returncode == 0, where.stderr
    assert all(path.startswith(str(installed.packages)) for path in where.stdout.split())
    assert installed.run("debugkit", "rules").returncode == 0
    listed = installed.run("lab", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    assert [lab["id"] for lab in json.loads(listed.stdout)["labs"]] == [lab.id for lab in catalog.all_labs()]


def test_a_learner_who_installed_the_wheel_is_refused_and_passes_with_the_fix(installed: Installed) -> None:
    home = installed.work / "mine"
    assert installed.run("lab", "init", str(home)).returncode == 0
    started = installed.run("lab", "start", "62", at=home)
    assert started.returncode == 0, started.stderr
    mine = home / "lab62_costly_exam" / "policy.py"  # the quickest lab to grade in full
    assert mine.is_file()
    refused = installed.run("lab", "grade", "62", at=home)
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert "not fixed yet" in refused.stdout
    shutil.copyfile(installed.packages / "solutions" / mine.parent.name / "policy.py", mine)
    passed = installed.run("lab", "grade", "62", at=home)
    assert passed.returncode == 0, passed.stdout + passed.stderr
