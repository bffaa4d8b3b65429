"""The callback in a real Trainer: silent on a healthy run, loud on a faulty one, and gone afterwards."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.trainer_utils import RemoveColumnsCollator

from debugkit import DebugkitError
from debugkit.integrations.transformers import DebugkitCallback, _with_all_columns, check_trainer
from debugkit.rule import UnknownCodeError

EXTENDED_DEPENDS_ON = ("debugkit", "tests/debugkit")

Attached = Callable[[nn.Module], int]


class Tokens(torch.utils.data.Dataset[dict[str, Any]]):
    """Random sentences of eight tokens; `weight` is a column that no argument of a causal model's forward takes."""

    def __init__(self, *, weighted: bool = False) -> None:
        self.weighted = weighted

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = torch.randint(0, 32, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": ids, "labels": ids.clone()} | ({"weight": 1.0 + index} if self.weighted else {})


def language_model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=16,
        )
    )


def trainer_of(
    model: nn.Module, folder: Path, *callbacks: Any, cls: type[Trainer] = Trainer, data: Any = None, **options: Any
) -> Trainer:
    arguments = TrainingArguments(
        str(folder),
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        logging_steps=1,
        dataloader_pin_memory=False,
        **{"max_steps": 3, "per_device_train_batch_size": 4, **options},
    )
    return cls(model, arguments, train_dataset=data or Tokens(), callbacks=list(callbacks))


def losses_of(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


class NormOfTheState(nn.Module):
    """A language model whose loss has a term that is not differentiable where it starts: the root of zero."""

    def __init__(self) -> None:
        super().__init__()
        self.language, self.scale = language_model(), nn.Parameter(torch.zeros(()))

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        loss = self.language(input_ids=input_ids, labels=labels).loss
        return {"loss": loss + torch.sqrt(self.scale * self.scale)}


class Overflows(nn.Module):
    """The logarithm of a weight that begins at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.language, self.gate = language_model(), nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.gate.weight)

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        gate = torch.log(self.gate(torch.ones(1, 1)).abs()).sum()
        return {"loss": self.language(input_ids=input_ids, labels=labels).loss + 0 * gate}


class Breaks(nn.Module):
    """Raises in its second call."""

    def __init__(self) -> None:
        super().__init__()
        self.language, self.calls = language_model(), 0

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        self.calls += 1
        if self.calls == 2:
            raise RuntimeError("the camera is gone")
        return {"loss": self.language(input_ids=input_ids, labels=labels).loss}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"gradient_accumulation_steps": 2}, id="accumulated", marks=pytest.mark.extended),
        pytest.param({"bf16": True}, id="bf16", marks=pytest.mark.extended),
    ],
)
def test_a_healthy_run_is_silent_and_its_losses_are_bit_equal(
    tmp_path: Path, options: dict[str, Any], attached: Attached
) -> None:
    plain = trainer_of(language_model(), tmp_path, **options)
    plain.train()

    callback = DebugkitCallback()
    watched = trainer_of(language_model(), tmp_path, callback, **options)
    before = attached(watched.model)
    watched.train()

    assert callback.report.ok, str(callback.report)
    assert "3 steps watched" in callback.report.title
    assert "DK201" in callback.report.examined
    assert losses_of(watched) == losses_of(plain)
    assert all(
        torch.equal(one, other) for one, other in zip(watched.model.parameters(), plain.model.parameters(), strict=True)
    )
    assert attached(watched.model) == before


def test_a_faulty_run_is_found_at_its_line_and_can_be_stopped(tmp_path: Path, attached: Attached) -> None:
    callback = DebugkitCallback(on_finding="raise")
    trainer = trainer_of(NormOfTheState(), tmp_path, callback)
    before = attached(trainer.model)

    with pytest.raises(DebugkitError, match="DK202"):
        trainer.train()

    found = callback.report.by_code["DK202"][0]
    assert found.location.file == __file__
    assert "torch.sqrt" in Path(__file__).read_text().splitlines()[(found.location.line or 1) - 1]
    assert torch.isfinite(trainer.model.scale), "it was stopped before the step changed anything"
    assert attached(trainer.model) == before


def test_findings_go_to_a_function(tmp_path: Path) -> None:
    found: list[str] = []
    trainer_of(
        NormOfTheState(), tmp_path, DebugkitCallback(on_finding=lambda finding: found.append(finding.code))
    ).train()
    assert "DK202" in found


def test_an_overflow_is_logged_with_the_frames_before_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "debugkit"):
        trainer_of(Overflows(), tmp_path, DebugkitCallback(), max_steps=1).train()
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert "DK201 first-nonfinite" in text
    assert "abs min  abs max" in text
    assert "gate  Linear" in text


def test_nothing_stays_after_an_exception_of_the_training_itself(tmp_path: Path, attached: Attached) -> None:
    callback = DebugkitCallback()
    trainer = trainer_of(Breaks(), tmp_path, callback)
    before = attached(trainer.model)

    with pytest.raises(RuntimeError, match="the camera is gone"):
        trainer.train()

    assert attached(trainer.model) == before
    assert "1 step watched" in callback.report.title


def test_one_callback_watches_one_training_after_another(tmp_path: Path) -> None:
    callback = DebugkitCallback()
    trainer = trainer_of(language_model(), tmp_path, callback)
    trainer.train()
    trainer.args.max_steps = 2
    trainer.train()
    assert "2 steps watched" in callback.report.title


def test_trainer_is_what_it_was_when_no_callback_lives() -> None:
    gc.collect()
    original = Trainer.train
    callback = DebugkitCallback()
    assert Trainer.train is not original
    del callback
    gc.collect()
    assert Trainer.train is original


def test_a_misspelt_code_is_told_at_once() -> None:
    with pytest.raises(UnknownCodeError, match="DK99X"):
        DebugkitCallback(select="DK99X")


class WeighsTheLoss(Trainer):
    """Weighs each batch with a column of its data."""

    def compute_loss(self, model: nn.Module, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        inputs = dict(inputs)
        weight = inputs.pop("weight", None)
        loss = model(**inputs).loss
        return loss * weight.mean() if weight is not None else loss


def test_check_trainer_finds_the_column_that_the_loss_needs(tmp_path: Path) -> None:
    trainer = trainer_of(language_model(), tmp_path, cls=WeighsTheLoss, data=Tokens(weighted=True))
    before = torch.get_rng_state()

    [found] = check_trainer(trainer, select="DK905").findings

    assert found.code == "DK905"
    assert "`weight`" in found.message
    assert "remove_unused_columns=False" in found.fix
    assert trainer.optimizer is None
    assert torch.equal(torch.get_rng_state(), before)


def test_check_trainer_is_silent_where_nothing_needed_is_dropped(tmp_path: Path) -> None:
    for cls, data, options in (
        (Trainer, Tokens(), {}),
        (Trainer, Tokens(weighted=True), {}),
        (WeighsTheLoss, Tokens(weighted=True), {"remove_unused_columns": False}),
    ):
        trainer = trainer_of(language_model(), tmp_path, cls=cls, data=data, **options)
        report = check_trainer(trainer, select=["DK905", "DK101"])
        assert report.ok, str(report)
        assert "DK101" in report.examined


def test_columns_taken_off_the_data_set_itself_are_still_known() -> None:
    """What `datasets.Dataset` has done to it: the loader holds another data set, with fewer columns."""
    whole = [{"input_ids": [1], "weight": 2.0}]
    left = SimpleNamespace(column_names=["input_ids"])
    loader = SimpleNamespace(dataset=left, collate_fn=list, batch_size=1)
    known = _with_all_columns(SimpleNamespace(train_dataset=whole), loader)
    assert isinstance(known.collate_fn, RemoveColumnsCollator)
    assert known.dataset is whole
    assert list(known) == [[{"input_ids": [1]}]]
