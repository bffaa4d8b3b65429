"""Where a pack is: a folder, or one commit of a Git repository, which is cloned once into a cache.

This does not import the catalog, which reads at its import where the labs are.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from labs.learner.atomic_file import write_atomically

PACK = "pack.toml"
"""The file that makes a folder with `labs/` a pack."""

_ADDRESS = re.compile(r"(?P<url>(?:https|ssh|file)://[^\s@][^\s]*|[\w.-]+@[\w.-]+:[^\s]+)@(?P<commit>[^@\s/]+)")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_URL = re.compile(r"(?:https|ssh|file)://|[\w.-]+@[\w.-]+:")
_GIT = ("git", "-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "advice.detachedHead=false")
_NEW = """name = "{name}"
version = "0.1"
requires = ">={version}"
"""


class PackError(Exception):
    """There is no pack where the option says; the message says what to give instead."""


def is_address(given: str) -> bool:
    """Whether the option names a Git repository, and not a folder."""
    return _URL.match(given) is not None


def pack_folder(given: str) -> Path:
    """The folder of the pack; a repository is cloned if its commit is not in the cache. Raises PackError, OSError."""
    folder = _cloned(given) if is_address(given) else Path(given).expanduser().resolve()
    if not (folder / PACK).is_file():
        raise PackError(f"{folder} is not a pack: it has no {PACK}. `lab dev new NN SLUG --pack DIR` begins one.")
    if not (folder / "labs").is_dir():
        raise PackError(f"{folder} has no folder labs/. A pack has its labs there, and its solutions in solutions/.")
    return folder


def begin_pack(folder: Path) -> None:
    """Make an absent or empty folder a pack without labs; a pack stays as it is. Raises PackError, OSError."""
    if (folder / PACK).is_file():
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PackError(f"{folder} is not a pack, and it is not empty. Give the folder of a pack, or a new one.")
    from importlib.metadata import version

    (folder / "labs").mkdir(parents=True)
    (folder / "solutions").mkdir()
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    name = name if name[:1].isalpha() else f"pack-{name}".rstrip("-")
    text = _NEW.format(name=name[:64], version=version("vla-debug-lab"))
    write_atomically(folder / PACK, text.encode())


def seen_before(pack: str) -> bool:
    """Whether this pack was used before by this user; it is remembered. A file that cannot be written forgets it."""
    from platformdirs import user_data_path

    path = user_data_path("vla-debug-lab") / "packs.txt"
    with contextlib.suppress(OSError):
        seen = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        if pack in seen:
            return True
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, "".join(f"{one}\n" for one in [*seen, pack]).encode())
    return False


def _cloned(address: str) -> Path:
    found = _ADDRESS.fullmatch(address)
    if found is None or _COMMIT.fullmatch(found["commit"]) is None:
        raise PackError(
            f"{address} names no commit. Add @ and the whole commit id of 40 digits: a branch or tag can move."
        )
    from platformdirs import user_cache_path

    url, commit = found["url"], found["commit"]
    place = user_cache_path("vla-debug-lab") / "packs" / hashlib.sha256(url.encode()).hexdigest()[:16] / commit
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix="cloning-"))
    try:
        _fetch(url, commit, scratch)
        shutil.rmtree(scratch / ".git")  # nothing here is updated
        with contextlib.suppress(OSError):  # another process has put it there
            scratch.rename(place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return place


def _fetch(url: str, commit: str, to: Path) -> None:
    _git(to, "init", "--quiet")
    try:
        _git(to, "fetch", "--quiet", "--depth=1", "--no-tags", "--", url, commit)
    except PackError:
        # A server may offer only what a branch points to; then the commit is among what it has.
        _git(to, "fetch", "--quiet", "--no-tags", "--", url, "+refs/heads/*:refs/remotes/origin/*")
    _git(to, "checkout", "--quiet", "--detach", commit, "--")
    if _git(to, "rev-parse", "HEAD") != commit:
        raise PackError(f"{url} gave another commit than {commit}. Nothing was kept.")


def _git(at: Path, *arguments: str) -> str:
    # No prompt, and nothing of a repository that this process may run in.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    settings = {"GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1", "GIT_SSH_COMMAND": "ssh -oBatchMode=yes"}
    try:
        done = subprocess.run(
            [*_GIT, *arguments],
            cwd=at,
            env=kept | settings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise PackError("git is not installed, and a pack with an address is cloned with it. Install git.") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PackError(f"git {arguments[0]} failed: {last}")
    return done.stdout.strip()
