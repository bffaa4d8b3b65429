"""A fixed number of threads, no clock in a property test, and no process that outlives the test that started it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from hypothesis import HealthCheck, settings

import extended_record
from left_behind import Descendants, end

if TYPE_CHECKING:
    from shared_server import SharedServer

# `pytest -n` fills the cores with processes, and at one thread results repeat bitwise.
THREADS = os.environ.get("TEST_THREADS", "1")  # .ci/processors tests with more
os.environ["OMP_NUM_THREADS"] = THREADS  # before torch is imported, and for the processes that tests start
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # torch 2.6 starts a process for more that outlives the test
os.environ["LAB_LANG"] = "en"  # whatever the developer's locale is
if "torch" in sys.modules:
    sys.modules["torch"].set_num_threads(int(THREADS))

# Two workers share two cores: how long an example takes does not depend on the code alone.
settings.register_profile("no wall clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no wall clock")

started = Descendants()
of_fixtures: dict[pytest.FixtureDef[object], set[psutil.Process]] = {}
"""Processes of fixtures that several tests share, a fork server for instance: they last until the fixture ends."""


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    """Fails a test that leaves a process behind, and kills the process."""
    yield
    left = started.living() - set().union(*of_fixtures.values())
    if left and (stayed := end(left)):
        pytest.fail("this test, or a fixture that ended before it, leaves processes behind:\n" + "\n".join(stayed))


@pytest.fixture(autouse=True)
def each_process_group_ends_with_its_test() -> Iterator[None]:
    """A fork inherits it, and a second one cannot be initialised: the subjects of some labs start one."""
    yield
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture
def ipython(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """IPython's own shell, in this process. What it changes of the process is restored."""
    pytest.importorskip("IPython", reason="IPython is not installed: pip install ipython")
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # the shell replaces it
    monkeypatch.setattr(sys, "ps1", "", raising=False)  # the shell sets it, and Lightning reads it when it is imported
    shell = InteractiveShell.instance()
    yield shell
    shell.reset(new_session=False)
    InteractiveShell.clear_instance()


@pytest.fixture(autouse=True, scope="session")
def nothing_is_left_at_the_end() -> Iterator[None]:
    """The same for fixtures of the whole session."""
    yield
    if stayed := end(started.living()):
        pytest.fail("a fixture of the session leaves processes behind:\n" + "\n".join(stayed))


@pytest.fixture(scope="session")
def server() -> Iterator[SharedServer]:
    """One fork server for all tests of a process: a warm grade costs a tenth of a cold one."""
    from shared_server import SharedServer

    with pytest.MonkeyPatch.context() as patch:
        # A test that weakens its own server must not weaken this one, which starts whenever it is first needed.
        patch.delenv("LAB_NO_NAMESPACES", raising=False)
        patch.delenv("TMPDIR", raising=False)
        running = SharedServer()
    with running:
        yield running


@pytest.fixture
def lab_process(server: SharedServer) -> tuple[list[str], dict[str, Any]]:
    """A command that does what `lab` does in a process of its own, and how to start it: its grades are warm too."""
    from shared_server import command

    return command(server)


@pytest.fixture
def shared_server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every grade in this process is a warm one of that server. That a cold one is the same: `tests/grading`."""
    from shared_server import share

    share(lambda: request.getfixturevalue("server"), monkeypatch)


class SharedProcesses:
    """Takes note of what each fixture starts that is set up for more than one test."""

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        before = started.living()
        try:
            return (yield)
        finally:
            of_fixtures[fixturedef] = started.living() - before

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[object]) -> None:
        of_fixtures.pop(fixturedef, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    extended_record.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    extended_record.pytest_configure(config)
    config.pluginmanager.register(SharedProcesses())  # the session's own fixtures ask no conftest.py of a folder
