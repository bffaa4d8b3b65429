"""No starter passes by an attack, and a correct file that tries one ends in one verdict and leaves nothing behind.

The attacks are data: attacks/*.toml, one file a family. docs/grading.md says which of them the sandbox does not stop.
"""

from __future__ import annotations

import dataclasses
import json
import select
from pathlib import Path
from typing import Any

import msgspec
import pytest

from labs.grading import ForkServer, Grade, grade, json_document, junit, plain_text

LONGEST_DOCUMENT = 100_000
LONGEST_GRADE_S = 150
"""Far beyond every wall clock here on however loaded a machine, and far below for ever."""
GRADE_TYPES = {
    "id": str,
    "slug": str,
    "verdict": str,
    "reason": (str, type(None)),
    "seconds": float,
    "seed": int,
    "recognised_wrong_fix": (str, type(None)),
    "checks": list,
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
    ground: Any, server: ForkServer, solution: str, attacks: list[Any]
) -> None:
    """Otherwise every attack of that family would end in an exception of its own, and prove nothing."""
    [forger] = [one for one in attacks if one.name == "answers-ahead"]
    looking = dataclasses.replace(forger, code="@WIRE@\nprint(len(nonce), min(requests, replies) > 2)\n")
    ground.hand_in(looking.on(solution, ground))
    assert grade(ground.lab, ground.workspace, server=server).output == "32 True\n"


@pytest.mark.parametrize("containment", ["server", "fallback_server"])
def test_the_child_holds_no_pipe_but_its_own(
    containment: str, ground: Any, solution: str, request: pytest.FixtureRequest
) -> None:
    """Its requests, its answers and its output: with one of its supervisor's it could keep that from ending."""
    counting = (
        "import os, stat\nfound = set()\nfor number in range(4096):\n    try:\n        status = os.fstat(number)\n"
        "    except OSError:\n        continue\n    if not stat.S_ISCHR(status.st_mode): found.add(status.st_ino)\n"
        "print(len(found))\n"
    )
    ground.hand_in(counting + solution)
    assert grade(ground.lab, ground.workspace, server=request.getfixturevalue(containment)).output == "3\n"


@pytest.mark.slow
def test_no_starter_passes_by_it(attack: Any, ground: Any, server: ForkServer, starter: str) -> None:
    ground.hand_in(attack.on(starter, ground))
    found = grade(_lab(ground, attack), ground.workspace, server=server)
    assert found.verdict == "failed", found.reason
    assert "SEEN" not in found.output


@pytest.mark.slow
def test_a_correct_file_that_tries_it_ends_in_one_verdict_and_leaves_nothing(
    attack: Any, ground: Any, server: ForkServer, private: Path, solution: str, eventually: Any
) -> None:
    _try(attack, ground, server, private, solution, eventually)


@pytest.mark.slow
def test_the_same_holds_without_namespaces(
    attack: Any, ground: Any, fallback_server: ForkServer, private: Path, solution: str, eventually: Any
) -> None:
    _try(attack, ground, fallback_server, private, solution, eventually)


def _try(attack: Any, ground: Any, server: ForkServer, private: Path, solution: str, eventually: Any) -> None:
    ground.hand_in(attack.on(solution, ground))
    files, processes, descriptors = ground.files(), ground.processes(), _open_descriptors()

    found = grade(_lab(ground, attack), ground.workspace, server=server)

    assert found.verdict in attack.on_solution.split(" or "), found.reason
    assert_well_formed(found, _lab(ground, attack))
    assert eventually(lambda: ground.processes() <= processes), "a process outlives its grade"
    assert _open_descriptors() == descriptors
    assert list(private.iterdir()) == []
    assert ground.files() == files
    assert select.select(ground.outside, [], [], 0)[0] == []

    ground.hand_in(solution)
    after = grade(ground.lab, ground.workspace, server=server)
    assert after.passed, after.reason


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def assert_well_formed(found: Grade, lab: Any) -> None:
    """The documents of one grade are what docs/ promise, whatever was measured."""
    text = json.dumps(json_document([found]), allow_nan=False)
    assert len(text) < LONGEST_DOCUMENT
    document = json.loads(text)
    assert list(document) == ["schema", "labs"]
    assert document["schema"] == 1
    [one] = document["labs"]
    assert list(one) == list(GRADE_TYPES)
    assert all(isinstance(one[name], kind) for name, kind in GRADE_TYPES.items())
    assert one["seconds"] < LONGEST_GRADE_S
    assert (one["verdict"] == "passed") == all(check["outcome"] == "passed" for check in one["checks"])
    assert len(one["checks"]) == 3
    for check in one["checks"]:
        assert list(check) == list(CHECK_TYPES)
        assert all(isinstance(check[name], kind) for name, kind in CHECK_TYPES.items())
        assert check["kind"] in ("behaviour", "invariant", "outcome")
        assert check["outcome"] in ("passed", "failed", "not_run")
    shown = plain_text(found, lab)
    shown.encode()
    assert not any(ord(letter) < 32 and letter != "\n" for letter in shown)
    junit([found]).encode()


def _lab(ground: Any, attack: Any) -> Any:
    return msgspec.structs.replace(ground.lab, timeout_s=attack.timeout_s)
