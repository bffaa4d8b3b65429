"""`debugkit doctor --distributed`: an OK for each rank, or the name of the one that is missing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from debugkit.distributed.network_test import network, verdict
from debugkit.doctor import Health, Line

RANK = [sys.executable, "-m", "debugkit.distributed.network_test"]
NEVER_STARTS = [sys.executable, "-c", "import time; time.sleep(120)"]
KILLED = [
    sys.executable,
    "-c",
    "import os, signal, debugkit.distributed.network_test as test\n"
    "test.dist.monitored_barrier = lambda **_: os.kill(os.getpid(), signal.SIGKILL)\n"
    "test._main()",
]

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"):
        monkeypatch.delenv(name, raising=False)


def test_every_rank_says_ok() -> None:
    lines = list(network(30))
    assert [line.health for line in lines] == [Health.FINE, Health.FINE]
    assert all("OK: gloo adds up 2 ranks" in line.seen for line in lines)
    assert verdict(lines) == "All 2 ranks reach one another."


def test_a_rank_that_never_starts_is_named() -> None:
    first, second = network(3, command=lambda rank: NEVER_STARTS if rank == 1 else RANK)
    assert first.seen == "waited 3 s for rank 1, which never came"
    assert "--node-rank" in first.advice
    assert second.health is Health.BROKEN
    assert verdict([first, second]).startswith("2 of 2 ranks did not get through: 0, 1.")


def test_a_rank_that_is_killed_is_named_by_the_barrier_and_by_its_signal() -> None:
    first, second = network(10, command=lambda rank: KILLED if rank == 1 else RANK)
    assert first.health is second.health is Health.BROKEN
    assert "1 failed to pass monitoredBarrier" in first.seen
    assert second.seen == "ended by SIGKILL before it could answer"
    assert "memory" in second.advice


def test_without_rank_0_the_address_is_named() -> None:
    _, second = network(3, command=lambda rank: NEVER_STARTS if rank == 0 else RANK)
    assert "rank 0 is missing" in second.seen
    assert "MASTER_ADDR" in second.advice


def test_under_torchrun_one_rank_prints_for_all() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "debugkit.cli"]
    done = subprocess.run(
        [*torchrun, "doctor", "--distributed", "--timeout", "30"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("OK: gloo adds up 2 ranks") == 2
    assert done.stdout.count("All 2 ranks reach one another.") == 1


def test_verdict_counts_and_names() -> None:
    lines = [Line("rank 0 on a", "OK"), Line("rank 3 on b", "never came", Health.BROKEN)]
    assert verdict(lines) == "1 of 2 ranks did not get through: 3. Start with the first ✗ above."
