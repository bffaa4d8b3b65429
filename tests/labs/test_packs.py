"""`lab --pack`: labs from elsewhere, from a folder or from one commit, with their own progress."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from child_processes import run
from labs.learner.pack_source import PackError, begin_pack, is_address

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

COLLECTION = Path(__file__).parent / "collection"
NAME = "lab03_swapped_order"
LabAt = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.slow


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A pack with the fixture lab."""
    folder = tmp_path / "arms"
    shutil.copytree(COLLECTION, folder, ignore=shutil.ignore_patterns("__pycache__"))
    declare(folder)
    return folder


@pytest.fixture
def lab_at(tmp_path: Path, lab_process: tuple[list[str], dict[str, Any]]) -> LabAt:
    """`lab ARGS…` in a process of its own, for a user who has used nothing yet."""
    command, options = lab_process
    kept = {name: value for name, value in os.environ.items() if name not in ("VLA_LABS_ROOT", "LAB_PACK")}
    environment = kept | {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment |= {"HOME": str(tmp_path), "COLUMNS": "120", "PYTHONPATH": os.pathsep.join(sys.path)}
    (tmp_path / "here").mkdir()

    def at(*arguments: str | Path, cwd: Path = tmp_path / "here") -> subprocess.CompletedProcess[str]:
        return run([*command, *arguments], cwd=cwd, env=environment, **options)

    return at


def declare(folder: Path, version: str = "1.2", requires: str = ">=0.1") -> None:
    text = f'name = "arms"\nversion = "{version}"\nrequires = "{requires}"\n'
    (folder / "pack.toml").write_text(text, encoding="utf-8")


def commit(folder: Path) -> str:
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "init.defaultBranch=main"]
    if not (folder / ".git").exists():
        run([*git, "init", "-q"], cwd=folder, check=True)
    run([*git, "add", "-A"], cwd=folder, check=True)
    run([*git, "commit", "-q", "-m", "A version"], cwd=folder, check=True)
    return run([*git, "rev-parse", "HEAD"], cwd=folder, check=True).stdout.strip()


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The sentence, after checking that it is one."""
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


@pytest.mark.extended
def test_a_lab_of_a_pack_is_graded_and_its_progress_is_kept_apart(lab_at: LabAt, pack: Path, tmp_path: Path) -> None:
    started = lab_at("--pack", pack, "start", "03")
    assert started.returncode == 0, started.stderr
    assert f"next  lab --pack {pack} run 03" in started.stdout
    attempt = tmp_path / "here" / "workspace" / "arms" / NAME / "policy.py"
    assert lab_at("grade", "03", f"--pack={pack}").returncode == 1
    shutil.copy(pack / "solutions" / NAME / "policy.py", attempt)
    assert lab_at("--pack", pack, "grade", "03").returncode == 0

    in_pack = json.loads(lab_at("--pack", pack, "list", "--json").stdout)["labs"]
    assert [(one["slug"], one["status"]) for one in in_pack] == [("swapped_order", "passed")]
    own = {one["id"]: one["status"] for one in json.loads(lab_at("list", "--json").stdout)["labs"]}
    assert len(own) > 30
    assert own["03"] == "new"
    # In the pack's folder of the workspace, a command without the pack would mix the two.
    inside = attempt.parent
    assert "is the workspace of the pack arms" in refused(lab_at("list", cwd=inside))
    assert lab_at("--pack", pack, "diff", "03", cwd=inside).stdout.count("swapped") == 0


def test_trust_is_explained_once_for_each_pack(lab_at: LabAt, pack: Path) -> None:
    first = lab_at("--pack", pack, "list", "--json")
    assert "use only packs that you trust" in first.stderr
    assert len(first.stderr.splitlines()) == 1
    assert json.loads(first.stdout)
    assert lab_at("--pack", pack, "list").stderr == ""
    moved = pack.rename(pack.with_name("moved"))
    assert "use only packs that you trust" in lab_at("--pack", moved, "list").stderr


@pytest.mark.extended
def test_a_pack_is_verified_by_the_same_requirements(lab_at: LabAt, pack: Path) -> None:
    met = lab_at("--pack", pack, "dev", "verify")
    assert met.returncode == 0, met.stdout
    assert "1 of 1 labs meet the requirements." in met.stdout
    (pack / "labs" / NAME / "hints.md").unlink()
    violated = lab_at("--pack", pack, "dev", "verify")
    assert violated.returncode == 1
    assert "hints" in violated.stdout


def test_a_new_lab_begins_a_pack(lab_at: LabAt, tmp_path: Path) -> None:
    made = lab_at("dev", "new", "91", "odd_one", "--chapter", "frameworks", "--pack", "My Pack 2")
    assert made.returncode == 0, made.stderr
    folder = tmp_path / "here" / "My Pack 2"
    assert 'name = "my-pack-2"' in (folder / "pack.toml").read_text()
    assert (folder / "solutions" / "lab91_odd_one" / "policy.py").is_file()
    assert "lab --pack 'My Pack 2' dev verify 91" in made.stdout
    verified = lab_at("--pack", folder, "dev", "verify", "91")
    assert verified.returncode == 1
    assert "unfinished" in verified.stdout
    again = lab_at("dev", "new", "92", "odd_two", "--chapter", "frameworks", "--pack", folder)
    assert again.returncode == 0, again.stderr


def test_a_folder_with_other_files_does_not_become_a_pack(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("…")
    with pytest.raises(PackError, match="not empty"):
        begin_pack(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_repository_is_used_at_exactly_the_commit(lab_at: LabAt, pack: Path, tmp_path: Path) -> None:
    first = commit(pack)
    address = f"file://{pack}@{first}"
    assert "arms 1.2" in lab_at("--pack", address, "list").stdout
    declare(pack, version="1.3")
    second = commit(pack)
    assert "arms 1.2" in lab_at("--pack", address, "list").stdout
    assert "arms 1.3" in lab_at("--pack", f"file://{pack}@{second}", "list").stdout
    cached = sorted(path.parent.name for path in (tmp_path / "cache").rglob("pack.toml"))
    assert cached == sorted([first, second])
    assert not list((tmp_path / "cache").rglob(".git"))
    pack.rename(tmp_path / "gone")  # what is cached needs no network
    assert "arms 1.2" in lab_at("--pack", address, "list").stdout


@pytest.mark.parametrize("what", ["main", "v1", "HEAD", "0123abc", "0" * 40, ""])
def test_anything_but_a_commit_that_is_there_is_refused(lab_at: LabAt, pack: Path, tmp_path: Path, what: str) -> None:
    commit(pack)
    said = refused(lab_at("--pack", f"file://{pack}@{what}", "list"))
    assert ("names no commit" in said) == (what != "0" * 40)
    names = [path.name for path in (tmp_path / "cache").rglob("*")]  # one is a hash of the address
    assert [name for name in names if name.startswith("cloning-") or name == what] == []


@pytest.mark.parametrize(
    ("requires", "said"), [(">=99", "requires vla-debug-lab >=99, and this is"), ("new", "is not a list of versions")]
)
def test_another_version_is_refused(lab_at: LabAt, pack: Path, requires: str, said: str) -> None:
    declare(pack, requires=requires)
    assert said in refused(lab_at("--pack", pack, "list"))


def test_what_is_no_pack_is_one_sentence(lab_at: LabAt, pack: Path, tmp_path: Path) -> None:
    assert "is not a pack" in refused(lab_at("--pack", tmp_path, "list"))
    assert "Which pack?" in refused(lab_at("list", "--pack"))
    (pack / "pack.toml").write_text('name = "arms"\nversion = "1"\ncolour = "red"\n')
    assert "colour" in refused(lab_at("--pack", pack, "list"))
    assert "error" in json.loads(lab_at("--pack", pack, "list", "--json").stdout)


def test_what_an_address_is() -> None:
    assert all(map(is_address, ("https://a.b/c@0", "ssh://a/b", "file:///a", "git@example.com:a/b.git@0")))
    assert not any(map(is_address, ("pack", "./a@b", "/a/b", "ext::sh -c x", "http://a.b/c", "--upload-pack=x")))
