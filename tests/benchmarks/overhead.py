"""What watch() costs: CPU seconds of a training step with and without it, at one thread, from the first step on.

    python tests/benchmarks/overhead.py [--rounds 3] [--models 3] [--steps 192] [--write docs/debugkit/overhead.md]

Each variant trains the same model in a process of its own, and the processes take turns of a few steps, so other work
on the machine slows all of them. A ratio is the CPU time of all steps of a variant divided by that of the bare run in
the same round. A second bare run shows the noise. Not collected by pytest.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import io
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.debug_utils import DebugUnderflowOverflow

import debugkit
from debugkit.loop.pace import TINY_EVERY, TINY_FIRST
from debugkit.probe import FIRST_STEPS, SAMPLED_EVERY, THOROUGH_STEPS

Step = Callable[[], object]
Variant = Callable[[nn.Module, torch.optim.Optimizer], contextlib.AbstractContextManager[object]]

TINY_LOOP = "two layers, 40 moves a step"
MODELS = {
    TINY_LOOP: None,
    "4 layers, width 128": (4, 128),
    "16 layers, width 128": (16, 128),
    "6 layers, width 512": (6, 512),
}
"""Llamas of 1.8, 4.1 and 22.9 million parameters; about 58, 214 and 84 modules."""
BLOCK = 8
"""Steps in one turn: after the turn of another process the caches are cold, which costs a watched step more."""
TINY_STEPS = 16
"""Times as many steps as of the other models: about three seconds, which is short for reinforcement learning."""


@dataclass(frozen=True)
class Result:
    """One variant on one model, in all rounds."""

    variant: str
    step_ms: float
    """The median of all steps."""
    ratios: tuple[float, ...]
    """For each round: all steps."""
    first: tuple[float, ...]
    """For each round: the steps that are all examined."""
    later: tuple[float, ...]
    """For each round: the steps after them."""


def llama(layers: int, width: int) -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    """A Llama with labels inside, 4 sequences of 128 tokens, AdamW."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4000,
        hidden_size=width,
        intermediate_size=width * 8 // 3 // 16 * 16,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=8,
        use_cache=False,
        max_position_embeddings=256,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(4000, (4, 128))

    def step() -> None:
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()

    return model, optimizer, step


def moving_policy() -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    """A policy of two layers that moves 40 times without gradients for each step of the optimizer."""
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    state, batch = torch.randn(1, 8), torch.randn(64, 8)

    def step() -> None:
        with torch.no_grad():
            for _ in range(40):
                policy(state)
        optimizer.zero_grad()
        policy(batch).square().mean().backward()
        optimizer.step()

    return policy, optimizer, step


def build(name: str) -> tuple[nn.Module, torch.optim.Optimizer, Step]:
    """One of `MODELS`."""
    shape = MODELS[name]
    return moving_policy() if shape is None else llama(*shape)


@contextlib.contextmanager
def anomaly_mode() -> Iterator[None]:
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        yield


@contextlib.contextmanager
def transformers_detector(model: nn.Module) -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()):
        DebugUnderflowOverflow(model)  # type: ignore[no-untyped-call]
    yield


VARIANTS: dict[str, Variant] = {
    "bare": lambda _model, _optimizer: contextlib.nullcontext(),
    "bare, again": lambda _model, _optimizer: contextlib.nullcontext(),
    "watch()": debugkit.watch,
    "watch(every=10)": lambda model, optimizer: debugkit.watch(model, optimizer, every=10),
    "anomaly mode": lambda _model, _optimizer: anomaly_mode(),
    "DebugUnderflowOverflow": lambda model, _optimizer: transformers_detector(model),
}


def train(name: str, variant: str) -> None:
    """The process of one variant: reads the number of steps to take, and answers with their CPU seconds."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    _, _, step = build(name)
    for _ in range(3 if MODELS[name] else 50):  # the first steps of a process are slower
        step()
    model, optimizer, step = build(name)
    with VARIANTS[variant](model, optimizer) as run:
        gc.collect()  # what imports and the model have left, which would be collected in one of the first steps
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for line in sys.stdin:
            began = time.process_time()
            for _ in range(int(line)):
                step()
            sys.stdout.write(f"{time.process_time() - began!r}\n")
            sys.stdout.flush()
    if isinstance(run, debugkit.Run):
        assert run.report.ok, run.report


def one_round(name: str, variants: list[str], steps: int, block: int) -> dict[str, list[float]]:
    """The CPU seconds of each block of steps, by variant."""
    running = {
        variant: subprocess.Popen(
            [sys.executable, __file__, "--train", name, variant],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for variant in variants
    }
    try:
        for process in running.values():
            answer(process)
        spent: dict[str, list[float]] = {variant: [] for variant in variants}
        for _ in range(steps // block):
            for variant, process in running.items():
                assert process.stdin is not None
                process.stdin.write(f"{block}\n")
                process.stdin.flush()
                spent[variant].append(float(answer(process)))
        return spent
    finally:
        for process in running.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def answer(process: subprocess.Popen[str]) -> str:
    """The next line. Raises RuntimeError if the process has ended."""
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise RuntimeError(f"The process of {process.args!r} has ended.")
    return line.strip()


def measure(name: str, variants: list[str], steps: int, rounds: int) -> list[Result]:
    """All variants on one model."""
    tiny = MODELS[name] is None
    block, first = BLOCK, TINY_FIRST if tiny else FIRST_STEPS
    steps *= TINY_STEPS if tiny else 1
    spent = [one_round(name, variants, steps, block) for _ in range(rounds)]
    results = []
    for variant in variants:
        own, bare = [one[variant] for one in spent], [one["bare"] for one in spent]
        results.append(
            Result(
                variant,
                statistics.median(seconds for one in own for seconds in one) / block * 1e3,
                *(
                    tuple(sum(one[part]) / sum(other[part]) for one, other in zip(own, bare, strict=True))
                    for part in (slice(None), slice(first // block), slice(first // block, None))
                ),
            )
        )
        each = results[-1]
        sys.stdout.write(
            f"{name:28} {variant:24} {each.step_ms:7.1f} ms   all {shown(each.ratios)}   first {shown(each.first)}   "
            f"later {shown(each.later)}\n"
        )
        sys.stdout.flush()
    return results


def shown(ratios: tuple[float, ...]) -> str:
    """The median, and the smallest and largest round."""
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def page(results: dict[str, list[Result]], steps: int, rounds: int) -> str:
    """The page of the documentation."""
    lines = [
        "# What watching costs",
        "",
        "CPU time of one training step (forward, backward, AdamW) of a Llama, 4 × 128 tokens, float32, one thread.",
        f"Each variant trains the same model in a process of its own. The processes take turns of {BLOCK} steps, so",
        "other work on the machine slows all of them. A ratio compares a variant with the bare run of the same round:",
        f"the median of {rounds} rounds, and the smallest and largest one. “bare, again” is a second bare run: a ratio",
        "that is no further from 1.00 cannot be distinguished from no cost.",
        "",
        f"“from the first step” is all {steps} steps of a run ({steps * TINY_STEPS} of the tiny model). The time",
        "that `watch()` takes to start, about half a second in a process that has not imported the rules yet, is not",
        f"part of it. Python's garbage is collected before the first step in every variant. “first {FIRST_STEPS}” are",
        "the steps that are all examined, and “later” is the part of the run after them.",
        "",
        f"In the first {THOROUGH_STEPS} steps the values inside the model are recorded. Up to step {FIRST_STEPS}, the",
        "loss, the model's output, the norm of every gradient and the weight updates are observed in each step. Later,",
        "the loss, the output and the gradients are observed in each step, and everything else in one of",
        f"{SAMPLED_EVERY}. With `every=10`, the nine steps between have almost no hooks.",
        "",
        f"A step of a tiny model takes less time than its observation. After {TINY_FIRST} observed steps it is",
        f"observed in one of {TINY_EVERY}.",
        "",
        "The target is 1.05 for `watch()`, 1.02 with `every=10`, and 1.3 for a tiny model.",
        "",
        f"Measured on {datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d} with torch {torch.__version__}, "
        f"{platform.machine()}, by `python tests/benchmarks/overhead.py`.",
        "",
        f"| model | variant | step, ms | from the first step | first {FIRST_STEPS} | later |",
        "|---|---|---:|---|---|---|",
    ]
    for name, rows in results.items():
        for each in rows:
            digits = 1 if each.step_ms < 10 else 0
            lines.append(
                f"| {name} | {each.variant} | {each.step_ms:.{digits}f} | {table(each.ratios)} | {table(each.first)} "
                f"| {table(each.later)} |"
            )
    return "\n".join(lines) + "\n"


def table(ratios: tuple[float, ...]) -> str:
    """`shown` with two digits."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each variant is run")
    parser.add_argument("--models", type=int, default=len(MODELS), help="how many of the models, smallest first")
    parser.add_argument("--steps", type=int, default=192, help="steps of a run")
    parser.add_argument("--variants", type=int, default=len(VARIANTS), help="how many of the variants")
    parser.add_argument("--write", type=Path, help="the markdown file to write")
    parser.add_argument("--train", nargs=2, metavar=("MODEL", "VARIANT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train is not None:
        train(*arguments.train)
        return
    variants = list(VARIANTS)[: arguments.variants]
    results = {
        name: measure(name, variants, arguments.steps, arguments.rounds) for name in list(MODELS)[: arguments.models]
    }
    if arguments.write is not None:
        arguments.write.write_text(page(results, arguments.steps, arguments.rounds), encoding="utf-8")


if __name__ == "__main__":
    main()
