"""Put the scripts of manifest.toml into a folder outside the repository, and refuse a file whose SHA-256 differs.

    python tests/third_party/fetch.py ~/third_party                  # download them
    python tests/third_party/fetch.py ~/third_party --from FOLDER    # copy them from a folder, offline

FOLDER holds what a download would give: `OWNER__REPO/path/of/the/file` for a file of GitHub, and the source archive
`NAME-VERSION.tar.gz` for a package of PyPI. No file of these projects is part of this repository.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tarfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from manifest import Script, Source, scripts

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch every script. Returns 1 if one is missing or differs, 2 if the folder is inside the repository."""
    parser = argparse.ArgumentParser(description="Fetch the scripts that manifest.toml lists.")
    parser.add_argument("folder", type=Path, help="where to put them; outside the repository")
    parser.add_argument("--from", dest="source", type=Path, help="a folder that holds them already")
    options = parser.parse_args(arguments)
    folder = options.folder.resolve()
    if folder.is_relative_to(ROOT):
        sys.stderr.write(f"{folder} is inside the repository: give a folder outside of it.\n")
        return 2
    problems = [problem for script in scripts() for problem in fetch(script, folder, options.source)]
    sys.stdout.write("".join(f"{problem}\n" for problem in dict.fromkeys(problems)))
    return int(bool(problems))


def fetch(script: Script, folder: Path, source: Path | None) -> list[str]:
    """What went wrong for one script; empty if all its files are in `folder`."""
    return [problem for item in script.sources if (problem := _fetched(item, folder, source))]


def _fetched(item: Source, folder: Path, source: Path | None) -> str:
    path = folder / item.path
    if not _is(path, item.sha256):
        try:
            content = (source / item.path).read_bytes() if source else _downloaded(item)
        except OSError as error:
            return f"{item.path}: {error}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    if not _is(path, item.sha256):
        path.unlink()
        return f"{item.path} has another SHA-256 than the manifest says."
    if item.package:
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
    return ""


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256


def _downloaded(item: Source) -> bytes:
    url = item.url
    if item.package:
        listed: dict[str, Any] = json.loads(_read(url))
        url = next(file["url"] for file in listed["urls"] if file["packagetype"] == "sdist")
    return _read(url)


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return bytes(answer.read())


if __name__ == "__main__":
    sys.exit(main())
