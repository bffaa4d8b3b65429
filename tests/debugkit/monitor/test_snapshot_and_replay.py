"""A snapshot repeats the step in another process, reads without unpickling, and is whole or absent."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import faulty_models
import pytest
import torch
from torch import nn

import child_processes
import debugkit
from debugkit.replay import SnapshotError, repeat, replay
from debugkit.step_replay.portable import NotPortable, decode, encode, load_tensors, save_tensors
from debugkit.step_replay.snapshot import SnapshotWriter

HERE = Path(__file__).parent


def break_a_run(folder: Path, model: nn.Module, seed: int = 0, steps: int = 12) -> debugkit.watch:
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters())
    with debugkit.watch(model, optimizer, on_finding=lambda _: None, snapshot_dir=folder, select="DK2") as run:
        for _ in range(steps):
            optimizer.zero_grad()
            output = model(torch.randn(4, 3))
            (output["action"] if isinstance(output, dict) else output).sum().backward()
            optimizer.step()
    return run


def test_another_process_repeats_a_gradient_fault_and_names_the_same_operation(tmp_path: Path) -> None:
    run = break_a_run(tmp_path, faulty_models.Distance())
    program = (
        "import sys; from debugkit.replay import repeat; result = repeat(sys.argv[1]);"
        "print(result.reproduced, result.report.findings[0].message)"
    )
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    command = [sys.executable, "-c", program, str(run.snapshots[0])]
    printed = child_processes.run(command, env=environment, check=True).stdout
    assert printed.startswith("True `SqrtBackward0` returned Inf for a finite gradient")
    assert (
        run.report.findings[0].message in printed.replace("0 of 0 gradients", "6 of 6 gradients") or "sqrt()" in printed
    )


def test_the_same_randomness_is_drawn_again(tmp_path: Path) -> None:
    """This NaN depends on what dropout drew: 1 row in 4 at best."""
    run = break_a_run(tmp_path, faulty_models.Quotient())
    result = repeat(run.snapshots[0], build="faulty_models:build_quotient")
    assert result.reproduced
    assert result.recorded is not None
    assert result.recorded.forward is not None
    assert result.found.forward is not None
    assert result.found.forward.operation == result.recorded.forward.operation == "div"
    assert result.found.forward.at == result.recorded.forward.at
    assert "action" in result.found.forward.code


def test_a_model_of_transformers_is_built_from_its_configuration(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, use_cache=False
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.norm.weight.fill_(1e38)
        model.lm_head.weight.mul_(1e3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = torch.randint(32, (2, 5))
    with debugkit.watch(model, optimizer, on_finding=lambda _: None, snapshot_dir=tmp_path, select="DK2") as run:
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    result = repeat(run.snapshots[0])
    assert result.reproduced
    found, recorded = result.found.forward, result.recorded.forward
    assert found is not None
    assert recorded is not None
    assert replace(found, frames=()) == replace(recorded, frames=())
    # With several threads, a sum is not added in the same order in every model.
    assert [(frame.module, frame.class_name) for frame in found.frames] == [
        (frame.module, frame.class_name) for frame in recorded.frames
    ]
    for one, other in zip(found.frames, recorded.frames, strict=True):
        for mine, theirs in zip(one.tensors, other.tensors, strict=True):
            assert mine.name == theirs.name
            expected = pytest.approx((theirs.minimum, theirs.maximum), rel=1e-3, abs=1e-6, nan_ok=True)
            assert (mine.minimum, mine.maximum) == expected


def test_nothing_in_a_snapshot_needs_unpickling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = break_a_run(tmp_path, faulty_models.Distance())
    assert {file.name for file in run.snapshots[0].iterdir()} == {"snapshot.json", "tensors.safetensors"}
    import importlib.util

    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "safetensors" else find_spec(name))
    values = {"t0": torch.arange(3), "t1": torch.ones(2, dtype=torch.bfloat16)}
    name = save_tensors(values, tmp_path)
    assert name == "tensors.pt"
    assert all(load_tensors(tmp_path / name)[key].equal(value) for key, value in values.items())


def test_snapshots_are_capped_and_whole(tmp_path: Path) -> None:
    run = break_a_run(tmp_path, faulty_models.Distance(), steps=8)
    assert 1 <= len(run.snapshots) <= 3
    assert sorted(tmp_path.iterdir()) == sorted(run.snapshots)


def test_a_snapshot_that_cannot_be_written_is_one_warning_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("debugkit.step_replay.snapshot.save_tensors", full)
    run = break_a_run(tmp_path, faulty_models.Distance(), steps=1)
    assert run.snapshots == ()
    assert list(tmp_path.iterdir()) == []
    assert "No space left on device" in caplog.text
    assert run.report.findings, "the finding itself must not be lost"


def test_an_exception_of_the_loop_is_kept_too(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)

    def loop() -> None:
        model(torch.randn(4, 3))
        raise ValueError("shapes differ")

    with pytest.raises(ValueError, match="shapes differ"), debugkit.watch(model, snapshot_dir=tmp_path) as run:
        loop()
    document = json.loads((run.snapshots[0] / "snapshot.json").read_text())
    assert document["why"] == "the loop raised ValueError: shapes differ"
    assert len(document["calls"]) == 1


@pytest.mark.parametrize(
    ("spoil", "build", "sentence"),
    [
        (lambda folder: (folder / "snapshot.json").unlink(), None, "is not a snapshot"),
        (lambda folder: (folder / "snapshot.json").write_text("{"), None, "is damaged"),
        (lambda folder: (folder / "snapshot.json").write_text('{"schema": 9}'), None, "does not support"),
        (lambda folder: (folder / "snapshot.json").write_text('{"schema": 1}'), None, "is damaged"),
        (lambda folder: None, "faulty_models:build_wrong", "must return a model"),
        (lambda folder: None, "faulty_models:missing", "cannot be imported"),
        (lambda folder: None, "faulty_models:build_quotient", "is not the recorded one"),
    ],
)
def test_what_is_wrong_with_a_replay_is_one_sentence(
    tmp_path: Path, spoil: Any, build: str | None, sentence: str
) -> None:
    run = break_a_run(tmp_path, faulty_models.Distance(), steps=1)
    spoil(run.snapshots[0])
    with pytest.raises(SnapshotError, match=sentence):
        replay(run.snapshots[0], build)


def test_a_value_that_no_file_can_hold_is_named() -> None:
    with pytest.raises(NotPortable, match="object"):
        encode({"cache": object()}, {})


def test_values_survive_the_file(tmp_path: Path) -> None:
    value = {
        "a": [1, 2.5, None, "x", True],
        3: (torch.ones(2), float("nan")),
        "t": torch.float16,
        "d": torch.device("cpu"),
    }
    tensors: dict[str, torch.Tensor] = {}
    back = decode(json.loads(json.dumps(encode(value, tensors))), tensors)
    assert back["a"] == value["a"]
    assert back[3][0].equal(torch.ones(2))
    assert back[3][1] != back[3][1]
    assert (back["t"], back["d"]) == (torch.float16, torch.device("cpu"))


def test_the_writer_stops_at_its_limit(tmp_path: Path) -> None:
    class Nothing:
        step, roots, optimizers, calls = 0, (), (), ()

    writer = SnapshotWriter(tmp_path, limit=2)
    assert [writer.write(Nothing(), "why") is None for _ in range(3)] == [False, False, True]  # type: ignore[arg-type]
    assert [path.name for path in writer.written] == ["step000000-exception", "step000000-exception-2"]
