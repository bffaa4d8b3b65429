"""debugkit's fake tensors leave a process that can fork, also with a CUDA build of torch on a machine without a GPU.

There, a FakeTensorMode registers devices that do not exist. A device in Python stands in for them here, because any
build of torch can register it. It cannot be unregistered, so each test runs in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from torch_versions import needs_python_device

pytestmark = [
    needs_python_device,
    pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU the autograd engine always has threads"),
]

REGISTER = """
from debugkit._torch_private import register_python_device
register_python_device("gpu", [])
"""
FORK = """
import os, torch
torch.ones(1, requires_grad=True).sum().backward()
child = os.fork()
if child == 0:
    torch.ones(1, requires_grad=True).sum().backward()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), end="")
"""
MODE = """
from debugkit._torch_private import fake_tensor_mode
import torch
with torch.inference_mode():
    fake_tensor_mode(allow_non_fake_inputs=True)
"""


def run(code: str) -> Any:
    return subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)


def test_a_backward_in_a_fork_works_after_fake_tensors() -> None:
    done = run(MODE + REGISTER + FORK)
    assert done.stdout == "0", done.stderr


def test_without_them_the_device_does_stop_a_backward_in_a_fork() -> None:
    """Otherwise the test above could not fail."""
    done = run(REGISTER + FORK)
    assert done.stdout == "1", done.stderr
    assert "fork-based multiprocessing" in done.stderr


def test_the_engine_is_started_without_an_event_of_a_watched_loop() -> None:
    code = """
import torch
from debugkit._torch_private import start_autograd_engine
def called(*_, **__):
    raise AssertionError
torch.autograd.backward = torch.autograd.grad = called
state = torch.get_rng_state()
start_autograd_engine()
print(torch.equal(torch.get_rng_state(), state))
"""
    assert run(code).stdout == "True\n"


def test_a_process_that_cannot_fork_a_backward_is_told_so() -> None:
    code = """
import torch, debugkit
from torch import nn
torch.ones(1, requires_grad=True).sum().backward()
import debugkit.measurements.second_device.measure as measure
def raises(*_, **__):
    raise RuntimeError("Unable to handle autograd's threading in combination with fork-based multiprocessing. See x")
pretend = measure._pretend
def child(*given):
    torch.autograd.backward = raises
    return pretend(*given)
measure._pretend = child
print(debugkit.simulate_device(nn.Linear(4, 1), torch.ones(2, 4), lambda model, batch: model(batch).sum()))
"""
    assert "The backward was not simulated: it runs in a fork of this process" in run(code).stdout
