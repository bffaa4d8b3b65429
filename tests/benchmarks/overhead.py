"""What watch() costs: CPU seconds of a training step with and without it, paired, at one thread.

    python tests/benchmarks/overhead.py [--pairs 3] [--models 3] [--whole 100] [--write docs/debugkit/overhead.md]

One model is trained alternately with and without watching. Each watched block of steps is compared with the unwatched
one that follows it, so that other work on the machine slows both. The ratio is the median over the pairs of blocks.
"first steps" are observed in full; "later" ones sample what is expensive. transformers' detector and anomaly mode are
measured step by step. A loop of a tiny network, as in reinforcement learning, is measured too. Not collected by pytest.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import platform
import statistics
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
from debugkit.probe import FIRST_STEPS, SAMPLED_EVERY, SETTLING_STEPS, THOROUGH_STEPS

Step = Callable[[], None]
MODELS = {"4 layers, width 128": (4, 128), "16 layers, width 128": (16, 128), "6 layers, width 512": (6, 512)}
"""1.8, 4.1 and 22.9 million parameters; about 58, 214 and 84 modules."""

TINY_LOOP = "two layers, 40 moves a step"
_SETTLED = THOROUGH_STEPS  # steps in which the values inside the model are all recorded


@dataclass(frozen=True)
class Row:
    """One variant on one model: the medians in ms, and the median of the pairs' ratios."""

    variant: str
    bare_ms: float
    watched_ms: float
    ratio: float


def build(layers: int, width: int) -> tuple[nn.Module, torch.optim.Optimizer, Step]:
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


def cpu_seconds(step: Step) -> float:
    """CPU time of one step, all threads of the process."""
    began = time.process_time()
    step()
    return time.process_time() - began


@contextlib.contextmanager
def nothing(_model: nn.Module, _optimizer: torch.optim.Optimizer) -> Iterator[None]:
    yield


@contextlib.contextmanager
def anomaly_mode(_model: nn.Module, _optimizer: torch.optim.Optimizer) -> Iterator[None]:
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        yield


@contextlib.contextmanager
def transformers_detector(model: nn.Module, _optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Its hooks are never removed, so they are taken out by hand: the next bare step must be bare."""
    before = {module: dict(module._forward_hooks) for module in model.modules()}
    with contextlib.redirect_stdout(io.StringIO()):
        DebugUnderflowOverflow(model)
    try:
        yield
    finally:
        for module, hooks in before.items():
            module._forward_hooks.clear()
            module._forward_hooks.update(hooks)


def measure(name: str, layers: int, width: int, pairs: int) -> list[Row]:
    """All variants on one model."""
    model, optimizer, step = build(layers, width)
    for _ in range(2):
        step()
    rows = [*watched(model, optimizer, step, pairs), tenth(model, optimizer, step, pairs)]
    for variant, context in (
        ("bare against bare", nothing),
        ("anomaly mode", anomaly_mode),
        ("DebugUnderflowOverflow", transformers_detector),
    ):
        size = SAMPLED_EVERY if context is nothing else 1
        spent = []
        for _ in range(pairs):
            with context(model, optimizer):
                other = block(step, size)
            spent.append((block(step, size), other))
        rows.append(row(variant, spent))
    show(name, rows)
    return rows


def show(name: str, rows: list[Row]) -> None:
    for each in rows:
        sys.stdout.write(f"{name:26} {each.variant:28} {each.bare_ms:7.1f} {each.watched_ms:7.1f} {each.ratio:6.3f}\n")
    sys.stdout.flush()


def watched(model: nn.Module, optimizer: torch.optim.Optimizer, step: Step, pairs: int) -> list[Row]:
    """A run's first steps and its later ones, in blocks that hold each kind of step as often as the run does."""
    first, later = [], []
    for _ in range(pairs):
        with debugkit.watch(model, optimizer) as run:
            block(step, SETTLING_STEPS)
            beginning = block(step, SAMPLED_EVERY)
            block(step, FIRST_STEPS - run.steps)
            end = block(step, SAMPLED_EVERY)
        assert run.report.ok, run.report
        bare = block(step, SAMPLED_EVERY)
        first.append((bare, beginning))
        later.append((bare, end))
    return [row("watch(), first steps", first), row("watch(), later", later)]


def tiny(pairs: int) -> list[Row]:
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

    block(step, TINY_FIRST)
    first, later, bare = [], [], []
    for _ in range(pairs):
        with debugkit.watch(policy, optimizer) as run:
            beginning = block(step, TINY_FIRST)
            end = block(step, 4 * TINY_EVERY)
        assert run.report.ok, run.report
        alone = block(step, TINY_FIRST)
        first.append((alone, beginning))
        later.append((alone, end))
        bare.append((block(step, TINY_FIRST), alone))
    rows = [
        row(f"watch(), first {TINY_FIRST} steps", first),
        row("watch(), later", later),
        row("bare against bare", bare),
    ]
    show(TINY_LOOP, rows)
    return rows


def whole(name: str, layers: int, width: int, steps: int, pairs: int) -> None:
    """A run from its first step on: each pair trains a new model without and with watching, and prints its ratios."""
    for _ in range(pairs):
        _, _, step = build(layers, width)
        bare = sum(cpu_seconds(step) for _ in range(steps))
        model, optimizer, step = build(layers, width)
        began = time.process_time()
        with debugkit.watch(model, optimizer):
            entered = time.process_time() - began
            spent = sum(cpu_seconds(step) for _ in range(steps))
        total = time.process_time() - began
        sys.stdout.write(
            f"{name:26} first {steps} steps {spent / bare:.3f}, with entering ({entered * 1e3:.0f} ms) and leaving "
            f"{total / bare:.3f}\n"
        )
        sys.stdout.flush()


def tenth(model: nn.Module, optimizer: torch.optim.Optimizer, step: Step, pairs: int) -> Row:
    """Ten steps, of which one is looked at."""
    spent = []
    for _ in range(pairs):
        with debugkit.watch(model, optimizer, every=10) as run:
            block(step, 10)
            other = block(step, 10)
        assert run.report.ok, run.report
        spent.append((block(step, 10), other))
    return row("watch(every=10)", spent)


def block(step: Step, size: int) -> float:
    """Mean CPU seconds of a step over a block of them."""
    return sum(cpu_seconds(step) for _ in range(size)) / size


def row(variant: str, pairs: list[tuple[float, float]]) -> Row:
    bare, other = zip(*pairs, strict=True)
    ratio = statistics.median(with_it / without for without, with_it in pairs)
    return Row(variant, statistics.median(bare) * 1e3, statistics.median(other) * 1e3, ratio)


def page(results: dict[str, list[Row]], pairs: int) -> str:
    """The page of the documentation."""
    lines = [
        "# What watching costs",
        "",
        "CPU time of one training step (forward, backward, AdamW) of a Llama, 4 × 128 tokens, float32, one thread.",
        "One model is trained alternately with and without watching. Each watched block of steps is compared with the",
        f"unwatched one of the same round: {SAMPLED_EVERY} steps, 10 with `every=10`, single steps for anomaly mode",
        f"and transformers' `DebugUnderflowOverflow`. The ratio is the median of the ratios of {pairs} pairs, not the",
        "quotient of the two columns of medians. “bare against bare” is the noise: a ratio that is no further from",
        "1.00 cannot be distinguished from no cost. Other work on the machine slows both sides, not always equally.",
        "",
        f"The first {_SETTLED} steps are observed in full. They cost more and are not measured here: some recorders",
        f"are active for a few steps only, others for {SETTLING_STEPS}.",
        f"Up to step {FIRST_STEPS} (“first steps”), and later, the loss, the model's output and the norm of",
        "every gradient are observed in each step; the values inside the model, dtypes and the",
        f"optimizers' groups in one of {SAMPLED_EVERY} steps, after step {FIRST_STEPS} the weight updates, too.",
        "With `every=10`, the nine steps between have no hooks on the modules except on the model and its direct",
        "children, to notice validation passes.",
        "",
        f"A step of a tiny model takes less time than its observation. It is observed in its first {TINY_FIRST} steps",
        f"and then in one of {TINY_EVERY}.",
        "",
        "The target is 1.05 for `watch()`, 1.02 with `every=10`, and 1.3 for a tiny model after its first steps.",
        "",
        f"Measured on {datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d} with torch {torch.__version__}, "
        f"{platform.machine()}, by `python tests/benchmarks/overhead.py`.",
        "",
        "| model | variant | bare, ms | with it, ms | ratio |",
        "|---|---|---|---|---|",
    ]
    for name, rows in results.items():
        digits = 1 if rows[0].bare_ms < 10 else 0
        for r in rows:
            times = f"{r.bare_ms:.{digits}f} | {r.watched_ms:.{digits}f}"
            lines.append(f"| {name} | {r.variant} | {times} | {r.ratio:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3, help="pairs of blocks for each variant")
    parser.add_argument("--models", type=int, default=len(MODELS), help="how many of the models, smallest first")
    parser.add_argument("--whole", type=int, help="measure only whole runs of this many steps, and print the ratios")
    parser.add_argument("--write", type=Path, help="the markdown file to write")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    chosen = list(MODELS.items())[: arguments.models]
    if arguments.whole is not None:
        for name, shape in chosen:
            whole(name, *shape, arguments.whole, arguments.pairs)
        return
    results = {TINY_LOOP: tiny(3 * arguments.pairs)}
    results |= {name: measure(name, *shape, arguments.pairs) for name, shape in chosen}
    if arguments.write is not None:
        arguments.write.write_text(page(results, arguments.pairs), encoding="utf-8")


if __name__ == "__main__":
    main()
