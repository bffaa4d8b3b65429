"""The memory limit is what a submission may take, whatever the installed torch takes before it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from labs.grading import ForkServer, grade
from labs.grading.catalog import Lab
from labs.grading.sandbox import limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited on Linux only")

CHECKS = """
@check(kind="invariant", title="t", property="p", instrument="i")
def test_a(submission, rng):
    submission.call("gripper_loss", rng.normal(2), rng.normal(2, 1))
"""
LIBRARIES = """
import mmap
mapped = mmap.mmap(-1, 4 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
"""
"""As much address space as the libraries of a large build of torch, and no memory."""
IN_A_CALL = """
def gripper_loss(prediction, target):
    held = [bytearray(64 << 20) for _ in range({parts})]
    return torch.zeros(())
"""
IN_ANOTHER_PROCESS = """
import subprocess, sys
def gripper_loss(prediction, target):
    subprocess.run([sys.executable, "-c", "held = [bytearray(64 << 20) for _ in range({parts})]"], check=True)
    return torch.zeros(())
"""


@pytest.mark.parametrize(
    ("code", "outcome", "said"),
    [
        (IN_A_CALL.format(parts=6), "passed", ""),  # 384 MiB
        (IN_A_CALL.format(parts=16), "failed", "MemoryError"),  # 1 GiB
        (IN_ANOTHER_PROCESS.format(parts=6), "passed", ""),
        (IN_ANOTHER_PROCESS.format(parts=128), "failed", "CalledProcessError"),  # 8 GiB
    ],
    ids=["within", "beyond", "another-process-within", "another-process-beyond"],
)
def test_the_limit_counts_from_what_the_imports_have_mapped(
    lab_with: Callable[..., Lab], solution: dict[str, str], server: ForkServer, code: str, outcome: str, said: str
) -> None:
    lab = lab_with(CHECKS, memory_mb=512)
    probe = lab.folder / "probe.py"
    probe.write_text(probe.read_text() + LIBRARIES)
    found = grade(lab, {"policy.py": solution["policy.py"] + code}, server=server)
    assert found.checks[0].outcome == outcome, found.reason
    assert said in found.checks[0].message


def test_without_proc_the_limit_is_the_smaller_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def masked(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", masked)
    assert limits.mapped_bytes() == 0


def test_what_is_mapped_grows_by_what_is_mapped() -> None:
    code = f"""
from labs.grading.sandbox.limits import mapped_bytes
before = mapped_bytes()
{LIBRARIES}
print(mapped_bytes() - before >> 20)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 4096 <= int(done.stdout) < 4160
