"""What a user writes, held by mypy --strict and pyright to the types that `assert_type` states. It also runs."""

# pyright: strict

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, assert_type

import torch
from torch import nn

import debugkit
from debugkit import Declare, Finding, Report

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from transformers import Trainer

Batch = dict[str, torch.Tensor]


def loss_fn(model: nn.Module, batch: Batch) -> torch.Tensor:
    error: torch.Tensor = model(batch["x"]) - batch["y"]
    return error.square().mean()


def make_batch(size: int) -> Batch:
    return {"x": torch.randn(size, 4), "y": torch.randn(size, 2)}


def first_action(predict: Callable[[Batch], torch.Tensor]) -> Callable[[Batch], torch.Tensor]:
    return lambda batch: predict(batch)[:, 0]


def examine(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    report = debugkit.check(
        model,
        make_batch(8),
        loss_fn,
        optimizer,
        dataloader={"train": [make_batch(8)], "validation": [make_batch(8)]},
        select=["DK0", "DK1"],
        ignore={"DK107": "the head starts at zero"},
        device="cpu",
        declare=Declare(causal=False, trainable=["*"], modalities=("x",), controller=first_action),
        baseline=None,
        budget=40.0,
        progress=None,
    )
    assert_type(report, Report)
    read_report(report)
    several = debugkit.check(model, make_batch(8), optimizer=[optimizer], loss_fn=loss_fn, select="DK101", ignore="DK2")
    assert_type(several.ok, bool)


def read_report(report: Report) -> None:
    assert_type(report.findings, tuple[Finding, ...])
    assert_type(report.errors, tuple[Finding, ...])
    assert_type(report.by_code, dict[str, tuple[Finding, ...]])
    assert_type(report.examined, tuple[str, ...])
    assert_type(report.failure, str | None)
    assert_type(report.versions, Mapping[str, str])
    assert_type(report.known, tuple[Finding, ...])
    assert_type(report.not_examined, tuple[debugkit.Unexamined, ...])
    assert_type([entry.why for entry in report.not_examined], list[str])
    assert_type(report.to_json(), dict[str, Any])
    assert_type(report.to_sarif(), dict[str, Any])
    assert_type(report.to_junit(), str)
    assert_type(report.to_html(), str)
    assert_type(report.to_text(verbose=True, errors_only=False, width=60), str)
    assert_type(Report.from_json(report.to_json()), Report)
    with tempfile.TemporaryDirectory() as folder:
        report.save_json(Path(folder) / "report.json")
        assert Report.from_json(str(Path(folder) / "report.json")) == report
    try:
        report.raise_for_errors()
    except debugkit.DebugkitError as error:
        assert_type(error.report, Report)


def read_finding(finding: Finding) -> None:
    assert_type(finding.severity, debugkit.Severity)
    assert_type(finding.certainty, debugkit.Certainty)
    assert_type(finding.location, debugkit.Location)
    assert_type(finding.location.line, int | None)
    assert_type(finding.evidence, Mapping[str, object])
    assert_type(finding.caused_by, str | None)
    if finding.severity is debugkit.Severity.ERROR:
        print(finding.code, finding.message, finding.fix)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 2) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss_fn(model, make_batch(4)).backward()  # type: ignore[no-untyped-call,unused-ignore]
        optimizer.step()


def watch_training(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    seen: list[str] = []

    def on_finding(finding: Finding) -> None:
        seen.append(finding.code)

    handler: debugkit.OnFinding = on_finding
    watched = debugkit.watch(
        model, optimizer, on_finding=handler, every=1, select="DK5", ignore=["DK505"], declare=Declare()
    )
    assert_type(watched, debugkit.Run)
    with watched as run:
        assert_type(run, debugkit.Run)
        train(model, optimizer)
    assert_type(run.report, Report)
    assert_type(run.steps, int)
    assert_type(run.losses, tuple[debugkit.Loss, ...])
    assert_type([(loss.step, loss.value, loss.calls) for loss in run.losses], list[tuple[int, float, int]])
    assert_type(run.snapshots, tuple[Path, ...])
    with debugkit.watch(model, on_finding="log"), debugkit.watch(model, [optimizer], on_finding="raise"):
        train(model, optimizer)


def use_the_instruments(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    batch = make_batch(8)
    typed_loss: debugkit.LossFn = loss_fn

    shapes = debugkit.trace_shapes(model, batch, typed_loss)
    assert_type(shapes, debugkit.ShapeTrace)
    assert_type(shapes.calls, tuple[debugkit.ModuleCall, ...])
    assert_type(shapes.calls[0].inputs, tuple[debugkit.TensorShape, ...])
    assert_type(shapes.failure, debugkit.ShapeFailure | None)

    table = debugkit.gradient_table(model, batch, loss_fn)
    assert_type(table, debugkit.GradientTable)
    assert_type(table.rows, tuple[debugkit.GradientRow, ...])
    assert_type(table.without_gradient(), tuple[str, ...])

    cut = debugkit.find_graph_cut(model, batch, loss_fn, optimizer=optimizer)
    assert_type(cut, debugkit.GraphCut)
    assert_type(cut.cuts, tuple[debugkit.Cut, ...])
    assert_type([each.line for each in cut.cuts], list[debugkit.SourceLine | None])

    overfit = debugkit.overfit_one_batch(model, batch, loss_fn, steps=3, learning_rate=1e-2, threshold=0.1, seed=0)
    assert_type(overfit, debugkit.Overfit)
    assert_type(overfit.verdict, Literal["learnt", "stuck", "diverged"])
    assert_type(overfit.suspects, tuple[debugkit.Suspect, ...])

    checked = debugkit.gradcheck(torch.tanh, torch.randn(3), eps=1e-6)
    assert_type(checked, debugkit.GradientCheck)
    assert_type(checked.tests, tuple[debugkit.GradientTest, ...])
    assert_type(checked.worst, debugkit.WorstEntry | None)

    origin = debugkit.first_nonfinite(model, batch, loss_fn)
    assert_type(origin, debugkit.NonfiniteOrigin | None)
    if origin is not None:
        assert_type(origin.frames, tuple[debugkit.Frame, ...])
        assert_type(origin.frames[0].tensors, tuple[debugkit.Extremes, ...])

    overflow = debugkit.detect_overflow(model, batch, loss_fn, dtype=torch.float16, last=None)
    assert_type(overflow, debugkit.Overflow)
    assert_type(overflow.first, str | None)

    written: list[str] = []
    with debugkit.trace_batches(model, [0], abort_after=None, write=written.append) as trace:
        assert_type(trace, debugkit.BatchTrace)
        model(batch["x"])
    assert_type(trace.frames, dict[int, tuple[debugkit.Frame, ...]])

    device = debugkit.simulate_device(model, batch, loss_fn, device=None)
    assert_type(device, debugkit.SecondDevice)
    assert_type(device.strays, tuple[debugkit.StrayTensor, ...])
    assert_type(device.ok, bool)

    profile = debugkit.memory_profile(model, batch, loss_fn, optimizer=[optimizer])
    assert_type(profile, debugkit.MemoryProfile)
    assert_type(profile.peak, debugkit.Peak)
    assert_type(profile.by_module, tuple[debugkit.ModuleBytes, ...])

    search = debugkit.find_batch_size(make_batch, model, loss_fn, optimizer=optimizer, budget_bytes=10_000, largest=16)
    assert_type(search, debugkit.BatchSizeSearch)
    assert_type(search.tried, tuple[debugkit.BatchSizeTried, ...])

    seeded = debugkit.seed_everything(7, deterministic=False, workers=True)
    assert_type(seeded, debugkit.Seeded)
    assert_type(seeded.loader(), dict[str, Any])

    with debugkit.snapshot_on_failure(model, optimizer, folder=folder) as run:
        assert_type(run, debugkit.Run)
        train(model, optimizer)

    with debugkit.watch_shapes(model, {"": "B 2"}, on_violation="record") as watched:
        assert_type(watched, debugkit.watch_shapes)
        model(batch["x"])
    assert_type(watched.observation, debugkit.ShapeHistory)
    assert_type(watched.observation.changes, tuple[debugkit.ShapeChange, ...])

    hang = debugkit.explain_hang(after=60.0)
    assert_context_manager(hang)
    assert_type(profile.to_json(), dict[str, Any])


def assert_context_manager(manager: AbstractContextManager[None]) -> None:
    """`explain_hang` may not be entered here: it needs a process group."""
    assert manager is not None


def handle_errors(model: nn.Module) -> None:
    try:
        debugkit.check(model, select="DK9999")
    except (debugkit.SetupError, debugkit.UnknownCodeError, debugkit.ReportFormatError) as error:
        assert_type(str(error), str)
    try:
        debugkit.gradient_table(model, torch.ones(1, 4))  # no loss_fn, and no batch of keywords either
    except (debugkit.NotExamined, debugkit.ShapeError, debugkit.TracedEnough) as limit:
        assert_type(str(limit), str)


def inside_frameworks(trainer: Trainer, config: DictConfig) -> None:
    """Not called: the frameworks take long to import, and their types are what is examined here."""
    from accelerate import Accelerator  # type: ignore[import-untyped,unused-ignore]

    from debugkit.integrations import accelerate, hydra, lightning, pytest_plugin, transformers
    from debugkit.integrations.hydra import ConfigComposition, ConfigLeaf, Setting

    model = nn.Linear(4, 2)
    huggingface = transformers.DebugkitCallback(on_finding="raise", every=10, select="DK2")
    assert_type(huggingface.report, Report)
    fabric = lightning.DebugkitCallback(snapshot_dir="snapshots", ignore=["DK5"])
    assert_type(fabric.report, Report)
    assert_type(accelerate.watch(Accelerator(), model, on_finding="log"), debugkit.Run)
    assert_type(transformers.check_trainer(trainer, select=["DK9"], ignore="DK2", declare=Declare()), Report)
    tracked = hydra.track_reads(config)
    assert_type(hydra.check_config(tracked, directories={"logs": "runs/logs"}), Report)
    assert_type(hydra.check_config({"lr": 1}, select="DK9"), Report)
    composed = hydra.provenance("conf", "config", ["train.lr=1"])
    assert_type(composed, ConfigComposition)
    assert_type(composed.leaves, tuple[ConfigLeaf, ...])
    assert_type(composed.of("train.lr").winner, Setting)
    assert_type(composed.to_json(), dict[str, Any])
    silent: Callable[..., None] = pytest_plugin.assert_silent
    pytest_plugin.assert_overfits(model, make_batch(4), loss_fn, steps=10)
    silent(model, make_batch(4), loss_fn)
    pytest_plugin.assert_gradients_reach(model, make_batch(4), "weight", "*.bias", loss_fn=loss_fn)


def main(arguments: Sequence[str] = ()) -> None:
    debugkit.seed_everything(len(arguments))
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    examine(model, optimizer)
    watch_training(model, optimizer)
    with tempfile.TemporaryDirectory() as folder:
        use_the_instruments(model, optimizer, Path(folder))
    handle_errors(model)
    read_finding(
        Finding(
            code="DK002",
            name="silent-broadcast",
            severity=debugkit.Severity.INFO,
            certainty=debugkit.Certainty.PROOF,
            message="…",
            location=debugkit.Location(module="head"),
            evidence={"pairs": 25},
            fix="…",
            url="…",
        )
    )


if __name__ == "__main__":
    main()
