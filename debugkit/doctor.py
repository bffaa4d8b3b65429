"""`debugkit doctor`: versions, devices, and the settings that decide what an error looks like."""

from __future__ import annotations

import enum
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

_SETTINGS = {
    "CUDA_LAUNCH_BLOCKING": "set to 1 to make a CUDA error name the line that caused it",
    "NCCL_DEBUG": "set to INFO to see what NCCL does before it hangs",
    "TORCH_DISTRIBUTED_DEBUG": "set to DETAIL to name unused parameters and mismatched collectives",
    "OMP_NUM_THREADS": "unset: as many threads as cores, in each process",
}
_PACKAGES = ("numpy", "transformers", "accelerate", "lightning", "hydra-core", "peft")
_NETWORK_SECONDS = 60


class Health(enum.Enum):
    """What a line says about the machine."""

    FINE = "✓"
    NOTE = "·"
    BROKEN = "✗"

    @property
    def symbol(self) -> str:
        """One character in front of the line."""
        return self.value


@dataclass(frozen=True, slots=True)
class Line:
    """One thing looked at."""

    what: str
    seen: str
    health: Health = Health.FINE
    advice: str = ""


def surroundings(environment: Mapping[str, str] = os.environ) -> Iterator[Line]:
    """Everything that can be read without starting anything."""
    yield Line("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield Line("torch", f"{torch.__version__}, {torch.get_num_threads()} threads")
    yield _accelerator()
    if torch.cuda.is_available():
        yield _cudnn()
    for package in _PACKAGES:
        try:
            yield Line(package, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            yield Line(package, "not installed", Health.NOTE)
    for name, advice in _SETTINGS.items():
        value = environment.get(name)
        yield Line(name, value or "not set", Health.FINE if value else Health.NOTE, "" if value else advice)


def _accelerator() -> Line:
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
        return Line("accelerator", f"CUDA {torch.version.cuda}: {names}")
    if torch.backends.mps.is_available():
        return Line("accelerator", "Apple MPS")
    if torch.version.cuda is not None:
        advice = (
            "torch was built for CUDA and finds no device: compare `nvidia-smi`'s driver with the CUDA version above."
        )
        return Line("accelerator", f"none, although torch is built for CUDA {torch.version.cuda}", Health.NOTE, advice)
    return Line("accelerator", "none: the device rules use a pretended one", Health.NOTE)


def _cudnn() -> Line:
    try:
        torch.nn.functional.conv2d(torch.zeros(1, 1, 4, 4, device="cuda"), torch.zeros(1, 1, 3, 3, device="cuda"))
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        advice = (
            "Usually another process holds the memory, or a cuDNN of another version comes first on LD_LIBRARY_PATH."
        )
        return Line("cuDNN", first, Health.BROKEN, advice)
    return Line("cuDNN", str(torch.backends.cudnn.version()))  # type: ignore[no-untyped-call]


_RANK = """
import sys, torch, torch.distributed as dist
from datetime import timedelta
rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=20))
total = torch.ones(1) * (rank + 1)
dist.all_reduce(total)
dist.destroy_process_group()
sys.exit(0 if total.item() == 3 else 1)
"""


def network() -> Iterator[Line]:
    """Two processes add up a number over gloo on this machine: the smallest test that communication works at all."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _RANK]
        ranks = [
            subprocess.Popen([*command, str(rank), f"{folder}/store"], stderr=subprocess.PIPE, text=True)
            for rank in (0, 1)
        ]
        try:
            for rank, process in enumerate(ranks):
                yield _rank_line(rank, process)
        finally:
            for process in ranks:
                process.kill()
                process.communicate()


def _rank_line(rank: int, process: subprocess.Popen[str]) -> Line:
    try:
        _, errors = process.communicate(timeout=_NETWORK_SECONDS)
    except subprocess.TimeoutExpired:
        advice = "The ranks do not reach each other: look at firewalls, at the host name, and set GLOO_SOCKET_IFNAME."
        return Line(f"gloo rank {rank}", f"no answer in {_NETWORK_SECONDS} s", Health.BROKEN, advice)
    if process.returncode == 0:
        return Line(f"gloo rank {rank}", "OK")
    last = (errors.strip().splitlines() or ["exit without a message"])[-1]
    return Line(f"gloo rank {rank}", last[:120], Health.BROKEN, "Set TORCH_DISTRIBUTED_DEBUG=DETAIL and run it again.")
