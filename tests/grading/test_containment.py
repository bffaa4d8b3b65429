"""Nothing outlives a grade: no process, no file, however the grade or the grader ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from child_processes import HANG_S, started
from labs.grading import ForkServer, grade, protections
from labs.grading.catalog import Lab
from labs.grading.sandbox import subreaper
from labs.grading.sandbox.launch import ColdLauncher, Pipes

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/grading")

DAEMON = """
import os, subprocess, sys
for name in ("setsid", "plain"):
    if os.fork() == 0:
        if name == "setsid":
            os.setsid()
            if os.fork():
                os._exit(0)
        os.execv(sys.executable, [sys.executable, "-S", "-c", "import time; time.sleep(3000)", {token!r}])
"""

GRANTED = {one.name for one in protections() if one.active}
needs_namespaces = pytest.mark.skipif("namespaces" not in GRANTED, reason="this system permits no user namespaces")


@pytest.fixture(params=["namespaces", "fallback"], scope="module")
def own_server(request: pytest.FixtureRequest, private: Path) -> Iterator[ForkServer]:
    """A server whose private folders lie below `private`, with and without namespaces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(private))
        if request.param == "fallback":
            patch.setenv("LAB_NO_NAMESPACES", "1")
        with ForkServer() as running:
            yield running


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("private")


def processes_with(token: str) -> list[int]:
    """The living processes that have the token among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if token.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether it holds before a deadline that only bounds a hang."""
    deadline = time.monotonic() + HANG_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_no_process_and_no_file_is_left(
    own_server: ForkServer, toy: Lab, solution: dict[str, str], tmp_path: Path, private: Path
) -> None:
    token = f"left-behind-{os.getpid()}-{tmp_path.name}"
    litter = "\nopen('in_the_working_folder', 'w').write('x')\nos.mkdir('locked')\nos.chmod('locked', 0)\n"
    text = DAEMON.format(token=token) + litter + solution["policy.py"]
    result = grade(toy, {"policy.py": text}, server=own_server)
    assert result.passed, result.reason
    assert processes_with(token) == []
    assert list(private.iterdir()) == []


def test_no_process_is_left_of_a_submission_that_died(
    own_server: ForkServer, toy: Lab, solution: dict[str, str], tmp_path: Path, private: Path
) -> None:
    token = f"left-behind-{os.getpid()}-{tmp_path.name}"
    text = DAEMON.format(token=token) + "os._exit(0)"
    assert grade(toy, {"policy.py": text}, server=own_server).verdict == "failed"
    assert processes_with(token) == []
    assert list(private.iterdir()) == []


GRADER = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from conftest import lab_at
from labs.grading import grade
text = "import time\\nprint('loaded', flush=True)\\ntime.sleep(3000)"
try:
    grade(lab_at(Path({toy!r}), timeout_s=600), {{"policy.py": text}})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="SIGKILL"),
        pytest.param(signal.SIGTERM, id="SIGTERM", marks=pytest.mark.extended),
        pytest.param(signal.SIGINT, id="SIGINT", marks=pytest.mark.extended),
    ],
)
def test_nothing_is_left_when_the_grader_is_killed(number: signal.Signals, tmp_path: Path) -> None:
    here = Path(__file__).parent
    code = GRADER.format(tests=str(here), toy=str(here / "toy" / "lab90_toy_offset"))
    private = tmp_path / "private"
    private.mkdir()
    environment = os.environ | {"TMPDIR": str(private), "PYTHONWARNINGS": "ignore"}
    with started([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as grader:
        assert eventually(lambda: bool(list(private.glob("*/submission")))), "the grade never started"
        supervisors = subreaper.children_of(grader.pid)
        assert supervisors
        os.kill(grader.pid, number)
        output = grader.communicate(timeout=HANG_S)[0].decode()
    assert eventually(lambda: not list(private.iterdir()))
    assert eventually(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in supervisors))
    assert ("interrupted" in output) == (number == signal.SIGINT)


def test_a_server_closed_while_it_still_imports_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with ForkServer():
        assert eventually(lambda: bool(list(tmp_path.iterdir()))), "the imports never began"
    assert list(tmp_path.iterdir()) == []


@needs_namespaces
def test_files_outside_its_folder_are_read_only_and_the_solutions_are_hidden(
    toy_with: Callable[..., Lab], solution: dict[str, str], server: ForkServer, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("before")
    toy = toy_with()
    looking = (
        "import os\n"
        f"try: open({str(victim)!r}, 'w')\nexcept OSError as error: print('refused', error.errno)\n"
        f"print('solutions', os.listdir({str(toy.solution.parent)!r}))\n"
        f"print('checks', open({str(toy.folder / 'checks.py')!r}).read() == '')\n"
        "import tempfile\nprint('scratch', tempfile.gettempdir() == os.getcwd() == os.environ['HOME'])\n"
        "print('network', sorted(os.listdir('/sys/class/net')) and open('/proc/net/dev').read().count(':'))\n"
    )
    result = grade(toy, {"policy.py": looking + solution["policy.py"]}, server=server)
    assert result.passed, result.reason
    assert victim.read_text() == "before"
    assert result.output.splitlines() == ["refused 30", "solutions []", "checks True", "scratch True", "network 1"]


def test_the_network_is_out_of_reach(own_server: ForkServer, toy: Lab, solution: dict[str, str]) -> None:
    looking = (
        "import socket\n"
        "try: socket.create_connection(('192.0.2.1', 9), timeout=5)\n"
        "except OSError as error: print(type(error).__name__)\n"
        "with socket.socket() as one, socket.socket() as two:\n"
        "    one.bind(('127.0.0.1', 0)); one.listen(); two.connect(one.getsockname()); print('loopback')\n"
    )
    result = grade(toy, {"policy.py": looking + solution["policy.py"]}, server=own_server)
    assert result.output.splitlines()[0] in ("OSError", "PermissionError")
    assert result.output.splitlines()[1] == "loopback"


def test_two_processes_of_gloo_find_each_other(toy: Lab, solution: dict[str, str], server: ForkServer) -> None:
    reducing = (
        "import torch, torch.distributed as dist, torch.multiprocessing as mp\n"
        "def work(rank, port):\n"
        "    dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=rank, world_size=2)\n"
        "    x = torch.ones(1)\n    dist.all_reduce(x)\n    print('sum', x.item(), flush=True)\n"
        "    dist.destroy_process_group()\n"
        "def gripper_loss(p, t):\n"
        "    both = [mp.get_context('fork').Process(target=work, args=(rank, 29531)) for rank in range(2)]\n"
        "    [one.start() for one in both]\n    [one.join() for one in both]\n"
    )
    result = grade(toy, {"policy.py": solution["policy.py"] + reducing}, server=server, seed=0)
    assert set(result.output.splitlines()) == {"sum 2.0"}


def test_a_folder_that_cannot_be_made_is_the_graders_error(
    toy: Lab, solution: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nowhere(ColdLauncher):
        def launch(self, job: dict[str, Any]) -> Pipes:
            # A file where the supervisor wants a folder fails as a full or read-only disk does, with an OSError.
            return super().launch({**job, "files": {"a": "", "a/policy.py": ""}})

    monkeypatch.setattr("labs.grading.sandbox.session.ColdLauncher", Nowhere)  # the second start fails too
    result = grade(toy, solution, server=Nowhere())
    assert result.verdict == "error"
    assert "the sandbox could not be set up" in (result.reason or "")
