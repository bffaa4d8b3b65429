"""Measure what the labs rely on: `python -m labs.vla.benchmark` fine-tunes on five seeds and writes RESULTS.md.

Times are CPU seconds of the process with one thread, without data generation and rollout: wall time on a shared machine
depends on other processes. Success is measured over 100 held-out tables each.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import transformers

from labs.vla.dataset import collate, demonstrations
from labs.vla.policy import BASE_PARTS, Policy
from labs.vla.rollout import rollout
from labs.vla.training import fit, overfit

RESULTS = Path(__file__).with_name("RESULTS.md")
EPISODES = 100


@dataclass(frozen=True)
class Setting:
    """One way to train a policy."""

    name: str
    head: str
    steps: int
    reinitialise: tuple[str, ...] = ()
    learning_rate: float = 1e-3


SETTINGS = (
    Setting("regression, 60 steps", "regression", 60),
    Setting("regression, 150 steps", "regression", 150),
    Setting("regression, 250 steps", "regression", 250),
    Setting("flow matching, 200 steps", "flow_matching", 200),
    Setting("tokens, 300 steps", "tokens", 300),
    Setting("tokens, 250 steps, twice the learning rate", "tokens", 250, learning_rate=2e-3),
    Setting("regression, vision re-initialised, 250 steps", "regression", 250, ("vision",)),
    Setting("regression, from scratch, 250 steps", "regression", 250, BASE_PARTS),
)


@dataclass(frozen=True)
class Run:
    """One seed of a setting."""

    seed: int
    loss: float
    """Mean over the last 20 steps."""
    success: float
    wrong_block: float
    distance: float
    """Median final distance, metres."""
    cpu_seconds: float


def measure(setting: Setting, seed: int) -> Run:
    """Fine-tune from the base on `seed` and roll out."""
    frames = demonstrations(setting.steps * 64, seed)
    policy = Policy.from_base(head=setting.head, seed=seed, reinitialise=setting.reinitialise)
    losses, seconds = _timed(
        lambda: fit(policy, frames, steps=setting.steps, seed=seed, learning_rate=setting.learning_rate)
    )
    result = rollout(policy, episodes=EPISODES)
    return Run(
        seed=seed,
        loss=round(sum(losses[-20:]) / 20, 4),
        success=result.success_rate,
        wrong_block=result.wrong_block_rate,
        distance=round(result.final_distance, 4),
        cpu_seconds=round(seconds, 1),
    )


def measure_overfit() -> dict[str, float]:
    """Fit one batch of eight: the step at which the loss is below a tenth of its initial value, and the CPU time."""
    batch = collate(demonstrations(8, seed=0), range(8))
    losses = overfit(Policy.from_base(), batch, 100)
    under = next(step for step, loss in enumerate(losses, start=1) if loss < 0.1 * losses[0])
    policy = Policy.from_base()
    _, seconds = _timed(lambda: overfit(policy, batch, under))
    return {"first loss": losses[0], "last loss": losses[-1], "steps to a tenth": under, "cpu_seconds": seconds}


def table(results: Sequence[tuple[Setting, list[Run]]], overfitted: dict[str, float]) -> str:
    """The results of all runs as a dated Markdown table."""
    lines = [
        "# Measured results",
        "",
        f"Written by `python -m labs.vla.benchmark` on {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, "
        f"{platform.machine()}, torch {torch.__version__}, transformers {transformers.__version__}, one thread.",
        f"Success over {EPISODES} held-out tables; CPU seconds of the fine-tuning alone.",
        "",
        "| from the base | success by seed | lowest | wrong block | distance (m) | loss | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for setting, runs in results:
        seeds = " ".join(f"{run.success:.2f}" for run in runs)
        lines.append(
            f"| {setting.name} | {seeds} | {min(run.success for run in runs):.2f} "
            f"| {_mean(run.wrong_block for run in runs):.2f} | {_mean(run.distance for run in runs):.3f} "
            f"| {_mean(run.loss for run in runs):.3f} | {_mean(run.cpu_seconds for run in runs):.1f} |"
        )
    lines += [
        "",
        f"One batch of eight: loss {overfitted['first loss']:.3f}, under a tenth of it after "
        f"{overfitted['steps to a tenth']} steps ({overfitted['cpu_seconds']:.1f} CPU s), "
        f"{overfitted['last loss']:.5f} after 100.",
        "",
    ]
    return "\n".join(lines)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)


def _timed(work: Callable[[], list[float]]) -> tuple[list[float], float]:
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def main() -> None:
    """Run every setting, print each run as a JSON line, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    measure(SETTINGS[0], seed=99)  # warm-up: the first optimizer step of a process imports torch._dynamo
    results = []
    for setting in SETTINGS:
        runs = []
        for seed in chosen.seeds:
            runs.append(measure(setting, seed))
            print(json.dumps({"setting": setting.name, **asdict(runs[-1])}), flush=True)  # noqa: T201
        results.append((setting, runs))
    chosen.out.write_text(table(results, measure_overfit()), encoding="utf-8")


if __name__ == "__main__":
    main()
