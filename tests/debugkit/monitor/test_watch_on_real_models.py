"""watch() on what people train: Hugging Face models, compiled ones, DDP, activation checkpointing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import training_loops as loops
from torch import nn

import debugkit
from debugkit.step_replay.nonfinite import NonfiniteOrigin
from debugkit.watched_run import monitor_of

EXTENDED_DEPENDS_ON = ("debugkit", "tests/debugkit")

transformers = pytest.importorskip("transformers")
Step = Callable[[], torch.Tensor]
dynamo_looks_at_grad = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


def llama() -> tuple[nn.Module, Step]:
    config = transformers.LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, use_cache=False
    )
    model = transformers.LlamaForCausalLM(config)

    def step() -> torch.Tensor:
        ids = torch.randint(40, (2, 6))
        mask = torch.ones(2, 6, dtype=torch.long)
        mask[0, 4:] = 0
        return model(input_ids=ids, attention_mask=mask, labels=ids).loss

    return model, step


def siglip() -> tuple[nn.Module, Step]:
    config = transformers.SiglipVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=8
    )
    model = transformers.SiglipVisionModel(config)
    return model, lambda: model(pixel_values=torch.randn(2, 3, 16, 16)).last_hidden_state.square().mean()


def eager_llama_in_bfloat16() -> tuple[nn.Module, Step]:
    """Eager attention adds a mask of finfo.min; the weights are half size."""
    model, step = llama()
    model.set_attn_implementation("eager")
    return model.bfloat16(), step


def checkpointed_llama() -> tuple[nn.Module, Step]:
    model, step = llama()
    model.activation_checkpointing_enable()
    return model, step


@pytest.mark.parametrize("build", [llama, siglip, eager_llama_in_bfloat16, checkpointed_llama])
def test_a_healthy_model_of_transformers_trains_bit_equal_and_in_silence(
    build: Callable[[], tuple[nn.Module, Step]],
) -> None:
    plain, watched = train(build, contextlib.nullcontext()), train(build, None)
    assert plain[0] == watched[0]
    assert all(a.equal(b) for a, b in zip(plain[1], watched[1], strict=True))


def train(
    build: Callable[[], tuple[nn.Module, Step]], context: contextlib.AbstractContextManager[object] | None
) -> tuple[list[float], list[torch.Tensor]]:
    """Three steps, under watch() where no other context is given."""
    torch.manual_seed(0)
    model, step = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run = debugkit.watch(model, optimizer, on_finding="raise", select=["DK2", "DK5"]) if context is None else None
    losses = []
    with run or context or contextlib.nullcontext():
        for _ in range(3):
            optimizer.zero_grad()
            loss = step()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    if run is not None:
        assert {"DK201", "DK202", "DK208"} <= set(run.report.examined)
        assert not run.report.findings
    return losses, [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("build", [llama, checkpointed_llama])
def test_an_overflow_in_a_layer_is_named_with_its_module_and_line(
    build: Callable[[], tuple[nn.Module, Step]],
) -> None:
    model, step = build()
    optimizer = torch.optim.AdamW(model.parameters())
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight.fill_(3e38)
    origin = first_forward_origin(model, optimizer, step)
    assert origin.module == "model.layers.1.mlp.up_proj"
    assert origin.operation in ("mm", "addmm", "linear", "bmm")
    assert origin.inputs_finite
    assert origin.at is not None
    assert Path(origin.at.file).name == "modeling_llama.py"
    assert "up_proj" in origin.code
    assert origin.frames[-1].module == "model.layers.1.mlp.up_proj"
    assert origin.frames[-1].tensors[0].name == "weight"


def first_forward_origin(model: nn.Module, optimizer: torch.optim.Optimizer, step: Step) -> NonfiniteOrigin:
    with debugkit.watch(model, optimizer, on_finding=lambda _: None, select="DK2") as run:
        seen: list[NonfiniteOrigin | None] = []
        monitor_of(run)._on_nonfinite = lambda found: seen.append(found.forward)
        optimizer.zero_grad()
        step().backward()
        optimizer.step()
    assert seen
    assert seen[0] is not None
    return seen[0]


def test_a_nan_stops_the_loop_before_the_weights_change() -> None:
    model, step = llama()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.no_grad():
        model.model.norm.weight.fill_(1e38)
        model.lm_head.weight.mul_(1e4)
    before = [p.detach().clone() for p in model.parameters()]

    def train() -> None:
        step().backward()
        optimizer.step()

    with pytest.raises(debugkit.DebugkitError, match="DK201"), debugkit.watch(model, optimizer, on_finding="raise"):
        train()
    assert all(a.equal(b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.extended
@dynamo_looks_at_grad
def test_a_compiled_model_is_watched_at_its_boundary_and_replayed_eagerly() -> None:
    model = loops.Policy()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters())

    def break_it() -> None:
        with torch.no_grad():
            model.head.bias.fill_(3e38)

    with debugkit.watch(compiled, optimizer, on_finding=lambda _: None, select=["DK2", "DK5"]) as run:
        losses = loops.plain(compiled, [optimizer])
        assert not run.report.findings
        break_it()
        loops.plain(compiled, [optimizer])
    assert len(losses) == 6
    assert run.report.findings[0].code in ("DK201", "DK202")
    assert run.report.findings[0].location.file == loops.__file__


@dynamo_looks_at_grad
def test_a_compiled_loss_is_left_alone() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_fn = torch.compile(lambda action: action.square().sum(-1).sqrt().mean(), backend="eager")
    runs = []
    for watched in (False, True):
        torch.manual_seed(0)
        model.reset_parameters()
        losses = []
        context = debugkit.watch(model, optimizer, select="DK2") if watched else contextlib.nullcontext()
        with context:
            for _ in range(4):
                optimizer.zero_grad()
                loss = loss_fn(model(torch.randn(4, 3)))
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        runs.append(losses)
    assert runs[0] == runs[1]


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_ddp_is_watched_and_its_inner_module_replayed() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 2)

        def forward(self, state: torch.Tensor) -> torch.Tensor:
            action = self.head(state)
            return (action - action.detach()).square().sum(-1).sqrt()

    model = nn.parallel.DistributedDataParallel(Root())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with debugkit.watch(model, optimizer, on_finding=lambda _: None, select="DK2") as run:
        model(torch.randn(4, 3)).mean().backward()
        optimizer.step()
    finding = run.report.findings[0]
    assert (finding.code, finding.location.file) == ("DK202", __file__)
    assert "`SqrtBackward0` returned Inf" in finding.message


def test_a_method_that_is_not_forward_is_watched_as_well() -> None:
    """`policy.compute_loss(batch)`: the root is never called, its parts are."""

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vision, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

        def compute_loss(self, state: torch.Tensor) -> torch.Tensor:
            features = self.vision(state)
            features = features / (features - features)
            return self.head(features).square().mean()

    model = Policy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with debugkit.watch(model, optimizer, on_finding=lambda _: None, select="DK2") as run:
        model.compute_loss(torch.randn(4, 3)).backward()
        optimizer.step()
    finding = run.report.findings[0]
    assert finding.code == "DK201"
    assert "features / (features - features)" in finding.evidence["code"]


def test_a_batch_changed_in_place_is_not_replayed_but_still_reported() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Softmax(-1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.no_grad():
        model[0].weight.fill_(3e38)
    state = torch.full((4, 3), 100.0)
    with debugkit.watch(model, optimizer, on_finding=lambda _: None, select="DK201") as run:
        model(state).sum().backward()
        state.zero_()
        optimizer.step()
    finding = run.report.findings[0]
    assert finding.location.module == "0"
    assert "changed in place" in finding.message
