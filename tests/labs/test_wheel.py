"""Two wheels: debugkit works alone, and the labs with it hold all that a lab needs, no tests, and grade a fix."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import debugkit
from child_processes import run
from labs.grading import catalog

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs", "*.md")

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"

PROGRAM = """
import torch

def build():
    batch = (torch.randn(8, 3), torch.randn(8, 1))
    loss_fn = lambda model, batch: (model(batch[0]) - batch[1]).square().mean()
    return {"model": torch.nn.Linear(3, 1), "batch": batch, "loss_fn": loss_fn}
"""

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


def build(project: Path, folder: Path) -> Path:
    """The wheel of a project of this checkout."""
    pytest.importorskip("hatchling", reason="the build backend is in the extra `dev`")
    done = run([sys.executable, "-c", BUILD, str(folder)], cwd=project)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the labs."""
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def debugkit_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of debugkit."""
    return build(ROOT / "debugkit", tmp_path_factory.mktemp("wheel"))


def install(factory: pytest.TempPathFactory, *wheels: Path) -> Installed:
    """Wheels in a virtual environment elsewhere, which borrows torch and the rest from the one that runs this."""
    made = Installed(factory.mktemp("fresh") / "venv", factory.mktemp("work"))
    venv.create(made.environment, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(made.environment / "bin" / "python")]
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    done = run([*pip, "install", *options, *map(str, wheels)])
    assert done.returncode == 0, done.stderr
    # A path file only appends: the wheels come first, and the editable install's own path file is not read.
    borrowed = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (made.packages / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, debugkit_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The labs and debugkit, as `pip install vla-debug-lab` gives them."""
    return install(tmp_path_factory, wheel, debugkit_wheel)


def metadata(wheel: Path, file: str) -> str:
    archive = zipfile.ZipFile(wheel)
    return archive.read(next(name for name in archive.namelist() if name.endswith(f".dist-info/{file}"))).decode()


def test_the_wheel_of_debugkit_is_the_whole_package_and_nothing_else(debugkit_wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(debugkit_wheel).namelist() if ".dist-info/" not in name}
    package = {path.relative_to(ROOT).as_posix() for path in _shipped(ROOT / "debugkit")}
    assert package - names == {"debugkit/pyproject.toml", "debugkit/README.md", "debugkit/LICENSE"}
    assert not names - package
    required = re.findall(r"^Requires-Dist: ([\w-]+)", metadata(debugkit_wheel, "METADATA"), re.MULTILINE)
    assert sorted(required) == ["rich", "torch", "typer"]
    assert f"Version: {debugkit.__version__}\n" in metadata(debugkit_wheel, "METADATA")
    assert (ROOT / "debugkit" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_labs_require_debugkit_and_do_not_contain_it(wheel: Path) -> None:
    told = metadata(wheel, "METADATA")
    [requirement] = [Requirement(line) for line in re.findall(r"^Requires-Dist: (debugkit.*)", told, re.MULTILINE)]
    assert requirement.name == "debugkit-torch"
    assert debugkit.__version__ in requirement.specifier
    assert metadata(wheel, "entry_points.txt").split() == ["[console_scripts]", "lab", "=", "labs.cli:main"]


@pytest.mark.extended
def test_debugkit_works_without_the_labs(debugkit_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    alone = install(tmp_path_factory, debugkit_wheel)
    (alone.work / "build.py").write_text(PROGRAM)
    done = alone.run("debugkit", "check", "build.py:build", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["versions"]["debugkit"] == debugkit.__version__
    (alone.work / "test_it.py").write_text("def test_it(assert_silent):\n    assert assert_silent\n")
    assert alone.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider").returncode == 0, "the pytest plugin"
    absent = alone.run("python", "-c", "import labs")
    assert "No module named 'labs'" in absent.stderr


def test_the_wheel_has_all_that_labs_need_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "labs/vla/base.safetensors" in names
    for lab in catalog.all_labs():
        of_lab = {path.relative_to(ROOT).as_posix() for path in _shipped(lab.folder, lab.solution)}
        needed = {
            f"labs/{lab.name}/{name}" for name in (*lab.editable, "probe.py", "checks.py", "hints.md", "lab.toml")
        }
        assert needed <= of_lab
        assert of_lab <= names, f"lab {lab.id} lacks {sorted(of_lab - names)}"
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"labs", "solutions", "vla_debug_lab"}
    assert not [name for name in names if "/test_" in name or name.endswith((".pyc", "conftest.py"))]


def _shipped(*folders: Path) -> list[Path]:
    return [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    ]


@pytest.mark.extended
def test_both_programs_run_from_the_wheel_and_not_from_the_checkout(installed: Installed) -> None:
    where = installed.run("python", "-c", "import labs, debugkit; print(labs.__file__, debugkit.__file__)")
    assert where.returncode == 0, where.stderr
    assert all(path.startswith(str(installed.packages)) for path in where.stdout.split())
    assert installed.run("debugkit", "rules").returncode == 0
    listed = installed.run("lab", "list", "--json")
    assert listed.returncode == 0, listed.stderr
    assert [lab["id"] for lab in json.loads(listed.stdout)["labs"]] == [lab.id for lab in catalog.all_labs()]


@pytest.mark.extended
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
    solution = installed.packages / "solutions" / mine.parent.name
    shutil.copyfile(solution / "policy.py", mine)
    correct = tomllib.loads((solution / "answers.toml").read_text(encoding="utf-8"))
    answers = "".join(f"{question} = {json.dumps(one['value'])}\n" for question, one in correct.items())
    (mine.parent / "answers.toml").write_text(answers, encoding="utf-8")
    passed = installed.run("lab", "grade", "62", at=home)
    assert passed.returncode == 0, passed.stdout + passed.stderr
