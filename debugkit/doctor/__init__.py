"""`debugkit doctor`: the state of this machine and environment for each row of the checklist.

Everything here only reads: versions, the driver, settings of torch, and environment variables that affect error
messages. The test that starts processes runs only with `--distributed`.
"""

from __future__ import annotations

import enum
import importlib.metadata
import multiprocessing
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from debugkit.doctor.checklist import ROWS, Row

Environment = Mapping[str, str]

_LITTLE_SHARED_MEMORY = 1 << 30
"""Docker's default is 64 MiB; the workers of a loader pass their batches through shared memory."""
_LITTLE_DISK = 5 << 30


class Health(enum.Enum):
    """The status of one line."""

    FINE = "✓"
    NOTE = "·"
    BROKEN = "✗"

    @property
    def symbol(self) -> str:
        """The character at the start of the line."""
        return self.value


@dataclass(frozen=True, slots=True)
class Line:
    """One property of the machine or the environment."""

    what: str
    seen: str
    health: Health = Health.FINE
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Examined:
    """One row of the checklist with the lines for it."""

    row: Row
    lines: tuple[Line, ...]


def checklist(environment: Environment = os.environ) -> Iterator[Examined]:
    """The eight rows, in order, each with what can be read without starting a process."""
    for row, examine in zip(ROWS, _EXAMINE, strict=True):
        yield Examined(row, tuple(examine(environment)))


def surroundings(environment: Environment = os.environ) -> Iterator[Line]:
    """The lines of all rows."""
    for examined in checklist(environment):
        yield from examined.lines


def _program(environment: Environment) -> Iterator[Line]:
    yield Line("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield Line("torch", str(torch.__version__))
    for package in ("numpy", "transformers", "accelerate", "lightning", "peft"):
        yield _package(package)
    yield _setting(
        environment, "PYTHONWARNINGS", "set it to default to see each warning once; many frameworks hide warnings"
    )


def _data(environment: Environment) -> Iterator[Line]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    seen = f"{threads} in torch, {cores} cores"
    crowded = "every process starts as many, so workers and ranks compete for the cores: set OMP_NUM_THREADS."
    yield Line("threads", seen, *((Health.NOTE, crowded) if threads > cores else ()))
    yield _setting(environment, "OMP_NUM_THREADS", "without it, each process starts as many threads as there are cores")
    yield _start_method()
    shared = Path("/dev/shm")
    if shared.is_dir():
        total = shutil.disk_usage(shared).total
        advice = "when it is full, a worker ends with a bus error: use docker run --shm-size=8g, or try num_workers=0."
        little = (Health.NOTE, advice) if total < _LITTLE_SHARED_MEMORY else ()
        yield Line("shared memory", f"{total / 2**30:.1f} GiB in /dev/shm", *little)


def _anomaly(_environment: Environment) -> Iterator[Line]:
    if torch.is_anomaly_enabled():
        advice = "it makes every step several times slower: use it for a debugging run, not for training."
        yield Line("anomaly mode", "on", Health.NOTE, advice)
    else:
        yield Line("anomaly mode", "off; it detects NaN in backward, but no Inf")
    yield Line("default dtype", str(torch.get_default_dtype()).removeprefix("torch."))
    yield Line("matmul precision", torch.get_float32_matmul_precision())


def _repeatable(environment: Environment) -> Iterator[Line]:
    on = torch.are_deterministic_algorithms_enabled()
    advice = "torch.use_deterministic_algorithms(True) raises at the first operation without a deterministic kernel."
    yield Line("deterministic", "on" if on else "off", *(() if on else (Health.NOTE, advice)))
    if torch.backends.cudnn.benchmark:
        advice = "it selects convolution algorithms by timing, so two runs may select different ones."
        yield Line("cuDNN benchmark", "on", Health.NOTE, advice)
    else:
        yield Line("cuDNN benchmark", "off")
    yield _setting(
        environment, "CUBLAS_WORKSPACE_CONFIG", "set it to :4096:8, otherwise deterministic matmuls raise on CUDA"
    )
    yield _setting(
        environment, "PYTHONHASHSEED", "set it to 0, otherwise sets of strings have a different order in each run"
    )


def _configuration(environment: Environment) -> Iterator[Line]:
    yield _package("hydra-core")
    yield _package("omegaconf")
    yield _setting(environment, "HYDRA_FULL_ERROR", "set it to 1 to see the full traceback of a Hydra program")


def _paths(environment: Environment) -> Iterator[Line]:
    here = Path.cwd()
    if os.access(here, os.W_OK):
        yield Line("working folder", str(here))
    else:
        yield Line("working folder", str(here), Health.BROKEN, "it is read-only, so relative output paths fail.")
    free = shutil.disk_usage(here).free
    little = (Health.NOTE, "a full disk leaves a truncated checkpoint, which cannot be loaded.")
    yield Line("free disk", f"{free / 2**30:.0f} GiB", *(little if free < _LITTLE_DISK else ()))
    yield _setting(
        environment, "HF_HOME", "without it, every node downloads pretrained weights to its own ~/.cache/huggingface"
    )


def _gpu(environment: Environment) -> Iterator[Line]:
    yield _accelerator()
    driver = _driver()
    if driver is not None:
        yield driver
    if torch.cuda.is_available():
        yield _cudnn()
    yield _setting(environment, "CUDA_LAUNCH_BLOCKING", "set it to 1 to make a CUDA error name the line that caused it")
    yield _setting(environment, "PYTHONFAULTHANDLER", "set it to 1 so that a segmentation fault prints the Python line")


def _processes(environment: Environment) -> Iterator[Line]:
    import torch.distributed as dist

    if not dist.is_available():
        yield Line("backends", "this build of torch has no torch.distributed", Health.NOTE)
        return
    backends = {"gloo": dist.is_gloo_available(), "nccl": dist.is_nccl_available(), "mpi": dist.is_mpi_available()}
    yield Line("backends", ", ".join(name for name, available in backends.items() if available) or "none")
    launched = [name for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR") if name in environment]
    yield Line("launched as a rank", ", ".join(f"{name}={environment[name]}" for name in launched) or "no")
    yield _setting(environment, "NCCL_DEBUG", "set it to INFO to see what NCCL does before it hangs")
    yield _setting(
        environment, "TORCH_DISTRIBUTED_DEBUG", "set it to DETAIL to name unused parameters and mismatched collectives"
    )


_EXAMINE: tuple[Callable[[Environment], Iterator[Line]], ...] = (
    _program,
    _data,
    _anomaly,
    _repeatable,
    _configuration,
    _paths,
    _gpu,
    _processes,
)
"""One function for each row of the checklist."""


def _package(name: str) -> Line:
    try:
        return Line(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Line(name, "not installed", Health.NOTE)


def _setting(environment: Environment, name: str, advice: str) -> Line:
    value = environment.get(name)
    return Line(name, value or "not set", Health.FINE if value else Health.NOTE, "" if value else advice)


def _start_method() -> Line:
    chosen = multiprocessing.get_start_method(allow_none=True)
    method = chosen or multiprocessing.get_all_start_methods()[0]
    seen = method if chosen else f"{method}, the default here"
    if method == "fork":
        advice = (
            "workers are copies of the parent process, in which a CUDA context, open files and held locks no longer "
            "work: DataLoader(multiprocessing_context='spawn') starts them without these."
        )
        return Line("loader start method", seen, Health.NOTE, advice)
    return Line("loader start method", seen)


def _driver() -> Line | None:
    """The driver version from nvidia-smi; None if there is no nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return Line("driver", "nvidia-smi does not respond", Health.BROKEN, "Restart the machine or reload its driver.")
    versions = sorted(set(done.stdout.split()))
    if done.returncode != 0 or not versions:
        first = (done.stdout or done.stderr).strip().partition("\n")[0]
        return Line("driver", first[:120] or "nvidia-smi failed", Health.BROKEN, "The kernel module is not loaded.")
    return Line("driver", ", ".join(versions))


def _accelerator() -> Line:
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
        return Line("accelerator", f"CUDA {torch.version.cuda}: {names}")
    if torch.backends.mps.is_available():
        return Line("accelerator", "Apple MPS")
    if torch.version.cuda is not None:
        advice = (
            "torch was built for CUDA but finds no device: compare the driver in `nvidia-smi` with this CUDA version."
        )
        return Line("accelerator", f"none, although torch is built for CUDA {torch.version.cuda}", Health.NOTE, advice)
    return Line("accelerator", "none: the device rules use a simulated device", Health.NOTE)


def _cudnn() -> Line:
    try:
        torch.nn.functional.conv2d(torch.zeros(1, 1, 4, 4, device="cuda"), torch.zeros(1, 1, 3, 3, device="cuda"))
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        advice = "Usually another process uses the memory, or a cuDNN of another version is first on LD_LIBRARY_PATH."
        return Line("cuDNN", first, Health.BROKEN, advice)
    return Line("cuDNN", str(torch.backends.cudnn.version()))  # type: ignore[no-untyped-call]
