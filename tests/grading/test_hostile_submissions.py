"""Whatever a submission does at import or in a call ends in `failed`: never a pass, never an error, never a hang."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from labs.grading import ForkServer, grade, protections
from labs.grading.catalog import Lab
from sampling import one_in, parameters

EXTENDED_DEPENDS_ON = ("labs/*.py", "labs/grading", "tests/grading")
AT_IMPORT = {
    "os._exit(0)": "import os; os._exit(0)",
    "sys.exit(0)": "import sys; sys.exit(0)",
    "raise SystemExit": "raise SystemExit",
    "raise KeyboardInterrupt": "raise KeyboardInterrupt",
    "raise": "raise ValueError('at import')",
    "unprintable exception": "class E(Exception):\n    def __str__(self): raise E\nraise E",
    "import of nothing": "import no_such_module",
    "syntax": "def f(:",
    "null byte": "x = 1\0",
    "segfault": "import ctypes; ctypes.string_at(0)",
    "SIGKILL": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "abort": "import os; os.abort()",
    "endless recursion": "def f(): f()\nf()",
    "closes all descriptors": "import os; os.closerange(3, 4096)",
    "floods stdout": "while True: print('x' * 4000)",
    "floods stderr": "import sys\nwhile True: sys.stderr.write('x' * 4000)",
    "hangs": "import time; time.sleep(1000)",
    "eats memory": "x = [bytearray(2**30) for _ in range(64)]",
    "fills a file": "f = open('big', 'wb')\nwhile True: f.write(bytes(2**24))",
    "forges frames on every descriptor": (
        "import os, struct, json\nh = json.dumps({'nonce': 0, 'value': None}).encode()\n"
        "for d in range(3, 1024):\n    try: os.write(d, struct.pack('>QQ', len(h), 0) + h)\n    except OSError: pass"
    ),
    "announces an endless frame": (
        "import os\nfor d in range(3, 1024):\n    try: os.write(d, b'\\xff' * 16)\n    except OSError: pass"
    ),
    "reads its requests away": (
        "import os\nfor d in range(3, 1024):\n"
        "    try:\n        os.set_blocking(d, False); os.read(d, 9999)\n    except OSError: pass\nos._exit(0)"
    ),
    "kills its parent": "import os; os.kill(os.getppid(), 9); os._exit(0)",
    "kills everything": "import os; os.kill(-1, 9)",
    "daemon and exit": "import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass\nos._exit(0)",
}

IN_A_CALL = {
    "returns None": "def gripper_loss(p, t): return None",
    "returns an object equal to everything": (
        "class A:\n    def __eq__(self, o): return True\n    def __lt__(self, o): return True\n"
        "def gripper_loss(p, t): return A()"
    ),
    "returns a float subclass": (
        "class F(float):\n    def __eq__(self, o): return True\n    def __sub__(self, o): return 0.0\n"
        "def gripper_loss(p, t): return F(1)"
    ),
    "returns a lying tensor": (
        "class T(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, *a, **k): return torch.zeros(())\n"
        "def gripper_loss(p, t): return torch.ones(()).as_subclass(T)"
    ),
    "returns NaN": "def gripper_loss(p, t): return torch.tensor(float('nan'))",
    "returns inf": "def gripper_loss(p, t): return float('inf')",
    "returns a huge integer": "def gripper_loss(p, t): return 10 ** 6000",
    "returns a cyclic list": "def gripper_loss(p, t):\n    a = []\n    a.append(a)\n    return a",
    "returns a huge tensor": "def gripper_loss(p, t): return torch.zeros(300, 1024, 1024)",
    "returns a sparse tensor": "def gripper_loss(p, t): return torch.eye(3).to_sparse()",
    "returns a meta tensor": "def gripper_loss(p, t): return torch.ones(3, device='meta')",
    "returns a tag": "def gripper_loss(p, t): return {'tensor': {'name': '0'}}",
    "returns a generator": "def gripper_loss(p, t): yield 1",
    "exits": "import os\ndef gripper_loss(p, t): os._exit(0)",
    "sys.exit": "import sys\ndef gripper_loss(p, t): sys.exit(0)",
    "is not there": "del gripper_loss",
    "is not a function": "gripper_loss = 3",
    "patches the comparison": (
        "torch.isclose = torch.allclose = lambda *a, **k: torch.tensor(True)\n"
        "torch.Tensor.__sub__ = lambda a, b: a * 0\n"
        "def gripper_loss(p, t): return torch.ones(())"
    ),
    "patches json": 'import json\njson.dumps = lambda *a, **k: \'{"nonce": 1, "value": null}\'',
    "imports pytest and the grader": (
        "import pytest, labs.grading.plugin as plugin\nplugin.ChecksPlugin._judge = lambda *a: ('passed', '')\n"
        "def gripper_loss(p, t): return torch.zeros(())"
    ),
    "answers twice": (
        "from labs.grading.sandbox import frames\nsend = frames.send\n"
        "frames.send = lambda d, f: (send(d, f), send(d, f))"
    ),
    "answers a request of its own": (
        "from labs.grading.sandbox import frames\npack = frames.pack\n"
        "frames.pack = lambda h, p=b'': pack({**h, 'nonce': 'mine'}, p)"
    ),
    "spawns threads that never end": (
        "import threading, time\n"
        "def spin():\n    while True: time.sleep(0.01)\n"
        "def gripper_loss(p, t):\n    threading.Thread(target=spin).start()\n    return torch.zeros(())"
    ),
}


HARMFUL_WITHOUT_NAMESPACES = {"kills its parent", "kills everything"}
NAMESPACES = any(one.name == "namespaces" and one.active for one in protections())


@pytest.fixture(scope="module")
def fallback_server() -> Iterator[ForkServer]:
    """A fork server as on a system that permits no namespaces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_NO_NAMESPACES", "1")
        with ForkServer() as running:
            yield running


ORDINARY = 3
"""One attack in so many runs in the ordinary suite."""


def _sampled(names: Iterable[str]) -> list[Any]:
    chosen = list(names)
    return parameters(chosen, one_in(ORDINARY, chosen), name=lambda name: name.replace(" ", "-"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack", _sampled(name for name in AT_IMPORT if NAMESPACES or name not in HARMFUL_WITHOUT_NAMESPACES)
)
def test_nothing_done_at_import_passes(
    attack: str, server: ForkServer, toy_with: Callable[..., Lab], solution: dict[str, str]
) -> None:
    _fails_at_import(attack, server, toy_with(timeout_s=2), solution)


@pytest.mark.extended
@pytest.mark.parametrize("attack", ["os._exit(0)", "hangs", "closes all descriptors", "daemon and exit", "eats memory"])
def test_nothing_done_at_import_passes_without_namespaces(
    attack: str, fallback_server: ForkServer, toy_with: Callable[..., Lab], solution: dict[str, str]
) -> None:
    _fails_at_import(attack, fallback_server, toy_with(timeout_s=2), solution)


def _fails_at_import(attack: str, server: ForkServer, lab: Lab, solution: dict[str, str]) -> None:
    result = grade(lab, {"policy.py": AT_IMPORT[attack] + "\n" + solution["policy.py"]}, server=server)
    assert result.verdict == "failed", result.reason
    assert result.reason
    assert {one.outcome for one in result.checks} <= {"failed", "not_run"}


@pytest.mark.slow
@pytest.mark.parametrize("attack", _sampled(IN_A_CALL))
def test_nothing_returned_from_a_call_passes(
    attack: str, server: ForkServer, toy_with: Callable[..., Lab], solution: dict[str, str]
) -> None:
    result = grade(
        toy_with(timeout_s=5), {"policy.py": solution["policy.py"] + "\n" + IN_A_CALL[attack]}, server=server
    )
    assert result.verdict == "failed", result.reason
    assert result.checks[0].outcome == "failed"
    assert result.checks[0].message


def test_printing_and_warning_are_no_failure(toy: Lab, solution: dict[str, str], server: ForkServer) -> None:
    chatty = "import warnings, sys\nwarnings.warn('careful')\nprint('\\x1b[31mhello')\nsys.stderr.write('there')\n"
    result = grade(toy, {"policy.py": chatty + solution["policy.py"]}, server=server)
    assert result.passed
    assert "hello" in result.output
