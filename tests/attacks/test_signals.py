"""A submission's signals do not reach the user's other processes, in each configuration of the sandbox.

The signal is one that every process ignores unless it asks for it: where the containment fails, nothing is harmed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from child_processes import run, started
from labs.grading import protections

EXTENDED_DEPENDS_ON = ("labs/*.py", "labs/grading", "tests/attacks")
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
VICTIM = """
import signal, time
signal.signal(signal.SIGURG, lambda *_: print("signalled", flush=True))
print("ready", flush=True)
while True: time.sleep(0.05)
"""
ATTACK = """
import os, signal
for name, attempt in (
    ("child", lambda: os.kill(own, signal.SIGURG)),
    ("group", lambda: os.killpg(0, signal.SIGURG)),
    ("victim", lambda: os.kill({victim}, signal.SIGURG)),
    ("its group", lambda: os.killpg({victim}, signal.SIGURG)),
    ("everything", lambda: os.kill(-1, signal.SIGURG)),
):
    own = os.fork()
    if own == 0:
        signal.pause()
    try:
        attempt()
        print(name, "sent")
    except OSError:
        print(name, "refused")
    os.kill(own, signal.SIGKILL)
    os.waitpid(own, 0)
"""
GRADER = """
import sys
sys.path[:0] = [{root!r}, {tests!r}]
from pathlib import Path
from conftest import TOY, lab_at
from labs.grading import ForkServer, grade
text = Path({attack!r}).read_text() + (TOY / "solution.py").read_text()
server = ForkServer() if {warm} else None
done = grade(lab_at(TOY), {{"policy.py": text}}, server=server)
if server: server.close()
print(done.output + done.verdict)
"""
DIRECTLY = """
import sys
sys.path.insert(0, {root!r})
from labs.grading.sandbox import kernel, signals
kernel.drop_capabilities()
assert signals.{mechanism}()
exec(open({attack!r}).read())
"""


def granted(without_namespaces: bool) -> set[str]:
    with pytest.MonkeyPatch.context() as patch:
        if without_namespaces:
            patch.setenv("LAB_NO_NAMESPACES", "1")
        return {one.name for one in protections() if one.active}


@pytest.fixture(params=["as is", "not as root"])
def identity(request: pytest.FixtureRequest) -> list[str]:
    """What starts a program as this user is, or without root's rights."""
    if request.param == "as is":
        return []
    if os.getuid() != 0:
        pytest.skip("this is not root in any case")
    prefix = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    tried = run([*prefix, "id", "-u"]) if shutil.which("unshare") else None
    if tried is None or tried.stdout != "1000\n":
        pytest.skip("this system permits no user namespaces")
    return prefix


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[str]]:
    """A process of the same user in a session of its own, which prints a line for each signal."""
    with started([sys.executable, "-c", VICTIM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def was_signalled(victim: subprocess.Popen[str]) -> bool:
    victim.kill()
    return bool(victim.communicate()[0])


def attack_on(victim: subprocess.Popen[str], folder: Path) -> Path:
    path = folder / "attack.py"
    path.write_text(ATTACK.format(victim=victim.pid))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("namespaces", ["namespaces", pytest.param("no namespaces", marks=pytest.mark.extended)])
@pytest.mark.parametrize("warm", [False, pytest.param(True, marks=pytest.mark.extended)], ids=["cold", "warm"])
def test_a_grade_signals_nothing_outside(
    warm: bool, namespaces: str, identity: list[str], victim: subprocess.Popen[str], tmp_path: Path
) -> None:
    without = namespaces == "no namespaces"
    has = granted(without)
    if not without and "namespaces" not in has:
        pytest.skip("this system permits no user namespaces")
    if "signals to all processes" not in has:
        pytest.skip("this system cannot contain signals, as `lab doctor` says")
    code = GRADER.format(
        root=str(ROOT), tests=str(HERE.parent / "grading"), attack=str(attack_on(victim, tmp_path)), warm=warm
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = os.environ | {"TMPDIR": str(scratch), "HOME": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("LAB_NO_NAMESPACES", None)
    if without:
        environment["LAB_NO_NAMESPACES"] = "1"
    done = run([*identity, sys.executable, "-c", code], env=environment, cwd=scratch)
    *attempts, verdict = done.stdout.splitlines()
    assert verdict == "passed", done
    assert attempts[:2] == ["child sent", "group sent"], "a submission may signal its own processes"
    if "signals to one process" in has:  # in a PID namespace, the victim's number may be that of a process in there
        assert not was_signalled(victim)
    else:
        assert attempts[3:] == ["its group refused", "everything refused"]


@pytest.mark.parametrize(
    ("mechanism", "refused"),
    [
        ("refuse_all_outside", ["victim refused", "its group refused"]),
        ("refuse_to_groups", ["its group refused", "everything refused"]),
    ],
)
def test_each_mechanism_refuses_what_it_says(
    mechanism: str, refused: list[str], identity: list[str], victim: subprocess.Popen[str], tmp_path: Path
) -> None:
    has = granted(without_namespaces=True)
    if ("signals to one process" if mechanism == "refuse_all_outside" else "signals to all processes") not in has:
        pytest.skip("this system lacks it")
    code = DIRECTLY.format(root=str(ROOT), mechanism=mechanism, attack=str(attack_on(victim, tmp_path)))
    # In a process group of its own: the attack signals its group.
    done = run([*identity, sys.executable, "-B", "-c", code], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    attempts = done.stdout.splitlines()
    assert attempts[:2] == ["child sent", "group sent"]
    assert set(refused) <= set(attempts)
    assert was_signalled(victim) == ("victim sent" in attempts)
