"""`debugkit doctor --distributed`: an OK for each rank, or the name of the one that is missing."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

import pytest

from child_processes import HANG_S, run
from debugkit.doctor import Health, Line
from debugkit.doctor.network_test import _free_port, answers_of_all, network, verdict
from debugkit.doctor.rank_test import RankResult

EXTENDED_DEPENDS_ON = ("debugkit", "tests/debugkit/distributed")
RANK = [sys.executable, "-m", "debugkit.doctor.rank_test"]
PRINTS_NOTHING = [sys.executable, "-S", "-c", "import time; time.sleep(3000)"]
PRINTS_OK = [sys.executable, "-S", "-c", f"print({json.dumps(json.dumps(asdict(RankResult(0, 'a', True, 'OK'))))})"]
KILLED = [
    sys.executable,
    "-c",
    "import os, signal, debugkit.doctor.rank_test as test\n"
    "test.dist.monitored_barrier = lambda **_: os.kill(os.getpid(), signal.SIGKILL)\n"
    "test._main()",
]

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"):
        monkeypatch.delenv(name, raising=False)


def test_a_rank_that_never_starts_is_named() -> None:
    """Here, as the first of two ranks whose second was never started."""
    first, second = answers_of_all(1, environment_of(0))
    assert first.seen == "waited 1 s for rank 1, which did not connect"
    assert "--node-rank" in first.advice
    assert second.health is Health.BROKEN
    assert verdict([first, second]).startswith("2 of 2 ranks failed: 0 and 1.")


def test_a_rank_without_a_result_is_waited_for_no_longer_than_the_others_need() -> None:
    first, second = network(1, command=lambda rank: PRINTS_NOTHING if rank == 1 else PRINTS_OK)
    assert first.health is Health.FINE
    assert second.health is Health.BROKEN
    assert "no result" in second.seen


@pytest.mark.extended
def test_a_rank_that_is_killed_is_named_by_the_barrier_and_by_its_signal() -> None:
    first, second = network(10, command=lambda rank: KILLED if rank == 1 else RANK)
    assert first.health is second.health is Health.BROKEN
    assert "1 failed to pass monitoredBarrier" in first.seen
    assert second.seen == "ended by SIGKILL before it had a result"
    assert "memory" in second.advice


def test_without_rank_0_the_address_is_named() -> None:
    """Here, as the second of two ranks whose first was never started."""
    [own] = answers_of_all(1, environment_of(1))
    assert "rank 0 is missing" in own.seen
    assert "MASTER_ADDR" in own.advice


@pytest.mark.extended
def test_under_torchrun_one_rank_prints_for_all() -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "debugkit.cli"]
    done = run(
        [*torchrun, "doctor", "--distributed", "--timeout", str(HANG_S)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("OK: gloo sums over 2 ranks") == 2
    assert done.stdout.count("All 2 ranks reach one another.") == 1


def test_verdict_counts_and_names() -> None:
    lines = [Line("rank 0 on a", "OK"), Line("rank 3 on b", "did not connect", Health.BROKEN)]
    assert verdict(lines) == "1 of 2 ranks failed: 3. Start with the first ✗ above."
    assert verdict([*lines[:1], *lines[:1]]) == "All 2 ranks reach one another."


def environment_of(rank: int) -> dict[str, str]:
    """The environment that a launcher gives one of two ranks on this machine."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
