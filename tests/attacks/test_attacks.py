"""No starter passes by an attack, and a correct file that tries one ends in one verdict and leaves nothing behind.

The attacks are data: attacks/*.toml, one file a family. docs/grading.md says which of them the sandbox does not stop.
"""

from __future__ import annotations

import dataclasses
import json
import select
import unicodedata
from pathlib import Path
from typing import Any

import msgspec
import pytest

from child_processes import HANG_S
from labs.cli.show_grade import show_grade, show_verdict
from labs.grading import ForkServer, Grade, grade, json_document, junit

EXTENDED_DEPENDS_ON = (
    "debugkit",
    "labs/*.py",
    "labs/cli",
    "labs/grading",
    "labs/locale",
    "tests/attacks",
    "tests/grading",
)
LONGEST_DOCUMENT = 100_000
GRADE_TYPES = {
    "id": str,
    "slug": str,
    "verdict": str,
    "reason": (str, type(None)),
    "seconds": float,
    "seed": int,
    "recognised_wrong_fix": (str, type(None)),
    "checks": list,
    "content": (str, type(None)),
}
CHECK_TYPES = dict.fromkeys(("id", "title", "kind", "outcome", "message"), str) | {
    "measured": object,
    "expected": object,
}


def test_there_are_more_than_forty_attacks_and_no_two_are_the_same(attacks: list[Any]) -> None:
    assert len(attacks) >= 40
    assert len({one.name for one in attacks}) == len(attacks)
    assert len({one.code for one in attacks}) == len(attacks)
    assert len({one.family for one in attacks}) >= 10


def test_the_forger_finds_what_it_needs_to_forge(
    target: Any, server: ForkServer, solution: str, attacks: list[Any]
) -> None:
    """Otherwise every attack of that family would end in an exception of its own, and prove nothing."""
    [forger] = [one for one in attacks if one.name == "answers-ahead"]
    looking = dataclasses.replace(forger, code="@WIRE@\nprint(len(nonce), min(requests, replies) > 2)\n")
    target.submit(looking.on(solution, target))
    assert grade(target.lab, target.workspace, server=server).output == "32 True\n"


@pytest.mark.parametrize("containment", ["server", "fallback_server"])
def test_the_child_holds_no_pipe_but_its_own(
    containment: str, target: Any, solution: str, request: pytest.FixtureRequest
) -> None:
    """Its requests, its replies and its output: with a pipe of its supervisor it could keep that from ending."""
    counting = (
        "import os, stat\nfound = set()\nfor number in range(4096):\n    try:\n        status = os.fstat(number)\n"
        "    except OSError:\n        continue\n    if not stat.S_ISCHR(status.st_mode): found.add(status.st_ino)\n"
        "print(len(found))\n"
    )
    target.submit(counting + solution)
    assert grade(target.lab, target.workspace, server=request.getfixturevalue(containment)).output == "3\n"


@pytest.mark.slow
def test_no_starter_passes_by_it(attack: Any, target: Any, server: ForkServer, starter: str) -> None:
    target.submit(attack.on(starter, target))
    found = grade(_lab(target, attack), target.workspace, server=server)
    assert found.verdict == "failed", found.reason
    assert "SEEN" not in found.output


@pytest.mark.slow
def test_a_correct_file_that_tries_it_ends_in_one_verdict_and_leaves_nothing(
    attack: Any,
    target: Any,
    server: ForkServer,
    private: Path,
    solution: str,
    eventually: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _try(attack, target, server, private, solution, eventually, capsys)


@pytest.mark.extended
@pytest.mark.slow
def test_the_same_holds_without_namespaces(
    attack: Any,
    target: Any,
    fallback_server: ForkServer,
    private: Path,
    solution: str,
    eventually: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _try(attack, target, fallback_server, private, solution, eventually, capsys)


def _try(
    attack: Any,
    target: Any,
    server: ForkServer,
    private: Path,
    solution: str,
    eventually: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target.submit(attack.on(solution, target))
    files, processes, descriptors = target.files(), target.processes(), _open_descriptors()

    found = grade(_lab(target, attack), target.workspace, server=server)

    assert found.verdict in attack.on_solution.split(" or "), found.reason
    assert_well_formed(found, _lab(target, attack), capsys)
    assert eventually(lambda: target.processes() <= processes), "a process outlives its grade"
    assert _open_descriptors() == descriptors
    assert list(private.iterdir()) == []
    assert target.files() == files
    assert select.select(target.outside, [], [], 0)[0] == []

    target.submit(solution)
    after = grade(target.lab, target.workspace, server=server)
    assert after.passed, after.reason


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def assert_well_formed(found: Grade, lab: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The documents of one grade have the documented form, whatever was measured."""
    text = json.dumps(json_document([found]), allow_nan=False, ensure_ascii=False)
    assert len(text) < LONGEST_DOCUMENT
    document = json.loads(text)
    assert list(document) == ["schema", "labs"]
    assert document["schema"] == 1
    [one] = document["labs"]
    assert list(one) == list(GRADE_TYPES)
    assert all(isinstance(one[name], kind) for name, kind in GRADE_TYPES.items())
    assert 0 < one["seconds"] < HANG_S
    assert (one["verdict"] == "passed") == all(check["outcome"] == "passed" for check in one["checks"])
    assert len(one["checks"]) == 3
    for check in one["checks"]:
        assert list(check) == list(CHECK_TYPES)
        assert all(isinstance(check[name], kind) for name, kind in CHECK_TYPES.items())
        assert check["kind"] in ("behaviour", "invariant", "outcome")
        assert check["outcome"] in ("passed", "failed", "not_run")
    show_grade(found, lab)
    show_verdict(found, lab)
    shown = capsys.readouterr().out + text + junit([found])
    shown.encode()
    assert not any(unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") and letter != "\n" for letter in shown)


def _lab(target: Any, attack: Any) -> Any:
    return msgspec.structs.replace(target.lab, timeout_s=attack.timeout_s)
