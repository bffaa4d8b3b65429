"""After `debugkit run`, the experiments of check() are run on a call of the model that the script made."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from debugkit.report import Report
from debugkit.script import watch_script

POOLED = """
import torch
from torch import nn

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 3)
    def forward(self, ids, mask=None):
        x = self.table(ids)
        {pool}
        return self.head(x)

def main():
    torch.manual_seed(0)
    model = Encoder()
    optimizer = torch.optim.Adam(model.parameters())
    for lengths in {lengths}:
        mask = (torch.arange(6)[None] < lengths[:, None]).long()
        ids = torch.randint(1, 11, (4, 6)) * mask
        optimizer.zero_grad()
        loss = model({given}).logsumexp(-1).mean()
        loss.backward()
        optimizer.step()
    {end}

if __name__ == "__main__":
    main()
"""
MASKED = "x = (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)"
CODES = ["DK303", "DK304", "DK305"]
UNKNOWN_LOSS = "How the loss is computed from the model's output is not known: use debugkit.check() with loss_fn=."
UNKNOWN_SAMPLES = "Which dimension of the model's inputs is the batch is not known: use debugkit.check()."


def run(folder: Path, text: str, *, select: list[str] = CODES, experiments: bool = True) -> Report:
    script = folder / "train.py"
    script.write_text(text)
    return watch_script(script, [], select=select, experiments=experiments).report


LOADED = "(loader := torch.utils.data.DataLoader(torch.randint(2, 7, (16,)), batch_size=4))"


def pooled(pool: str = MASKED, given: str = "ids, mask=mask", end: str = "", lengths: str = LOADED) -> str:
    return POOLED.format(pool=pool, given=given, end=end, lengths=lengths)


def reasons(report: Report) -> dict[str, str]:
    return {entry.code: entry.why for entry in report.not_examined}


def test_a_correct_model_is_examined_and_silent(tmp_path: Path) -> None:
    report = run(tmp_path, pooled())
    assert report.findings == ()
    assert report.examined == ("DK303", "DK305")
    assert reasons(report) == {"DK304": UNKNOWN_LOSS}


def test_padding_that_changes_the_output_is_found(tmp_path: Path) -> None:
    report = run(tmp_path, pooled("x = x.mean(1)"))
    assert [finding.code for finding in report.findings] == ["DK303"]


def test_samples_that_influence_each_other_are_found_at_their_line(tmp_path: Path) -> None:
    program = pooled(f"{MASKED}; x = x - x.mean(0)")
    (finding,) = run(tmp_path, program).findings
    assert finding.code == "DK305"
    assert finding.location.line == 1 + program[: program.index("x.mean(0)")].count("\n")


GENERATOR = """
import torch
from torch import nn
from torch.nn import functional as F

class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.query, self.head = nn.Linear(8, 8), nn.Linear(8, 11)
    def forward(self, idx, targets=None):
        x = self.table(idx) + self.places.weight
        x = x + F.scaled_dot_product_attention(self.query(x), x, x, is_causal={causal})
        logits = self.head(x)
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss

torch.manual_seed(0)
model = Generator()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(4):
    text = torch.randint(0, 11, (4, 7))
    optimizer.zero_grad()
    _, loss = model(text[:, :-1], text[:, 1:])
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("causal", "found"), [(False, ["DK304"]), (True, [])])
def test_a_model_that_computes_its_loss_is_examined_with_it(tmp_path: Path, causal: bool, found: list[str]) -> None:
    report = run(tmp_path, GENERATOR.format(causal=causal), select=["DK304", "DK305", "DK314"])
    assert [finding.code for finding in report.findings] == found
    assert report.examined == ("DK304", "DK314")
    assert reasons(report) == {"DK305": UNKNOWN_SAMPLES}


@pytest.mark.parametrize("size", [3, 8])
def test_a_first_dimension_that_no_loader_has_may_be_time(tmp_path: Path, size: int) -> None:
    """A model of one sequence at a time mixes the rows of its input on purpose."""
    lengths = f"[torch.full((4,), 6)] * 4 if (loader := torch.utils.data.DataLoader(range(32), {size})) else []"
    report = run(tmp_path, pooled(f"{MASKED}; x = x.cumsum(0)", lengths=lengths))
    assert report.findings == ()
    assert reasons(report)["DK305"] == UNKNOWN_SAMPLES


TOKENS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.zeros({rows}, 1, 6))
        self.places = nn.Parameter(torch.randn(50, 1, 6))
        self.encoder = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
    def forward(self, x):
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        return self.encoder(x + self.places[:{used}])[:, 0]

torch.manual_seed(0)
model = Reads()
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(TensorDataset(torch.randn({samples}, 3, 6)), batch_size=4, shuffle={shuffle})
for (x,) in loader:
    optimizer.zero_grad()
    model(x).logsumexp(-1).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("rows", "used", "samples", "shuffle", "severities"),
    [
        (4, 1, 32, True, ["error"]),
        (4, 1, 32, False, []),  # consecutive samples may have an order
        (4, 1, 4, True, []),  # the whole data set is one batch
        (1, 1, 32, True, []),
        (1, "len(x)", 32, True, ["error"]),
        (1, "len(x)", 32, False, ["info"]),
    ],
)
def test_values_by_row_are_found_for_samples_that_a_loader_draws(
    tmp_path: Path, rows: int, used: object, samples: int, shuffle: bool, severities: list[str]
) -> None:
    program = TOKENS.format(rows=rows, used=used, samples=samples, shuffle=shuffle)
    report = run(tmp_path, program, select=["DK305"])
    assert [finding.severity for finding in report.findings] == severities


def test_an_output_that_cannot_be_compared_is_said(tmp_path: Path) -> None:
    program = pooled().replace("return self.head(x)", "return torch.distributions.Categorical(logits=self.head(x))")
    report = run(tmp_path, program.replace(").logsumexp(-1).mean()", ").entropy().mean()"))
    why = "The model returned an object of type Categorical, which cannot be compared."
    assert set(reasons(report).values()) == {why}


def test_a_model_that_returns_only_its_loss_is_examined_by_it(tmp_path: Path) -> None:
    """Without the loss, nothing would change if an input changed, and DK306 would call it ignored."""
    program = pooled().replace("return self.head(x)", "return self.head(x).square().mean()").replace("ids", "tokens")
    report = run(tmp_path, program.replace(").logsumexp(-1).mean()", ")"), select=["DK306"])
    assert (report.findings, report.examined) == ((), ("DK306",))


def test_labels_that_the_model_takes_among_other_keywords_are_given_to_it(tmp_path: Path) -> None:
    """As for a model of PEFT."""
    program = (
        GENERATOR.format(causal=False)
        .replace("idx, targets=None", "idx, **more")
        .replace("logits = self.head(x)", "logits, targets = self.head(x), more.get('labels')")
        .replace("text[:, 1:])", "labels=text[:, 1:])")
    )
    report = run(tmp_path, program, select=["DK304"])
    assert [finding.code for finding in report.findings] == ["DK304"]


def test_without_experiments_the_rules_are_not_examined(tmp_path: Path) -> None:
    report = run(tmp_path, pooled("x = x.mean(1)"), experiments=False)
    assert (report.findings, report.examined) == ((), ())
    assert reasons(report)["DK303"] == "It is examined before training: use debugkit.check()."


def test_a_script_that_fails_is_not_run_again(tmp_path: Path) -> None:
    report = run(tmp_path, pooled("x = x.mean(1)", end="raise ValueError('planted')"))
    assert report.failure == "The script raised ValueError: planted."
    assert report.examined == ()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("ids[:1], mask=mask[:1]", "The model was called with fewer than two samples."),
        (
            "ids, mask=iter(mask)",
            "The model was called with an argument of type tuple_iterator, which cannot be copied.",
        ),
    ],
)
def test_a_call_that_cannot_be_repeated_is_said(tmp_path: Path, given: str, why: str) -> None:
    pool = "x = x.mean(1)" if "iter" in given else MASKED
    assert set(reasons(run(tmp_path, pooled(pool, given))).values()) == {why}


def test_a_script_without_training_is_said(tmp_path: Path) -> None:
    report = run(tmp_path, "from torch import nn\nnn.Linear(2, 2)\n")
    assert "two samples or more" in reasons(report)["DK305"]


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "The experiments raised OutOfMemoryError: CUDA out of memory."),
        (KeyboardInterrupt(), "The experiments were interrupted."),
    ],
)
def test_the_report_of_the_run_survives_the_experiments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException, why: str
) -> None:
    def examine(*_: object, **__: object) -> Report:
        raise raised

    monkeypatch.setattr("debugkit.script.examine", examine)
    report = run(tmp_path, pooled(), select=["DK101", "DK303"])
    assert report.examined == ("DK101",)
    assert reasons(report) == {"DK303": why}


def test_the_report_survives_the_signal_by_which_torchrun_ends_the_other_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def examine(*_: object, **__: object) -> Report:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
        raise AssertionError("the signal did not arrive")

    monkeypatch.setattr("debugkit.script.examine", examine)
    before = signal.getsignal(signal.SIGTERM)
    report = run(tmp_path, pooled(), select=["DK101", "DK303"])
    assert report.examined == ("DK101",)
    assert reasons(report) == {"DK303": "The experiments were interrupted."}
    assert signal.getsignal(signal.SIGTERM) == before


def on_one_of_several_ranks(pool: str = MASKED, wrap: str = "Wrapper(model)") -> str:
    """The same script with a process group, in which the model is wrapped."""
    text = pooled(pool).replace("import torch\n", "import torch, torch.distributed as dist\n", 1)
    text = text.replace(
        "from torch import nn", "from torch import nn\nfrom torch.nn.parallel import DistributedDataParallel as Wrapper"
    )
    group = 'dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)'
    text = text.replace("    torch.manual_seed(0)\n", f"    torch.manual_seed(0)\n    {group}\n")
    return text.replace("model = Encoder()", f"model = Encoder(); model = {wrap}")


@pytest.fixture
def no_process_group() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.usefixtures("no_process_group")
def test_a_model_that_several_ranks_train_is_examined_without_its_wrapper(tmp_path: Path) -> None:
    """The group still exists when the script has ended, and its other ranks call nothing any more."""
    assert run(tmp_path, on_one_of_several_ranks()).examined == ("DK303", "DK305")
    dist.destroy_process_group()
    (finding,) = run(tmp_path, on_one_of_several_ranks(f"{MASKED}; x = x - x.mean(0)")).findings
    assert (finding.code, finding.location.module) == ("DK305", "module.head")


@pytest.mark.usefixtures("no_process_group")
@pytest.mark.parametrize(
    ("pool", "wrap", "why"),
    [
        (f"{MASKED}; dist.all_reduce(x.detach())", "Wrapper(model)", "communicates with the other ranks"),
        (MASKED, "Wrapper(model); model.module.head = Wrapper(model.module.head)", "Parts of the model"),
    ],
)
def test_a_model_that_one_rank_cannot_call_alone_is_not_called(tmp_path: Path, pool: str, wrap: str, why: str) -> None:
    report = run(tmp_path, on_one_of_several_ranks(pool, wrap), select=["DK303"])
    assert (report.findings, report.examined) == ((), ())
    assert why in reasons(report)["DK303"]


TEACHER = """
teacher = Encoder().requires_grad_(False).eval()
student = Encoder()
optimizer = torch.optim.Adam(student.parameters())
for ids in (loader := torch.utils.data.DataLoader(torch.randint(1, 11, (16, 6)), batch_size=4)):
    with torch.no_grad():
        wanted = teacher(ids)
    optimizer.zero_grad()
    (student(ids) - wanted).square().mean().backward()
    optimizer.step()
"""


def test_the_model_that_is_trained_is_examined_and_named_as_in_the_run(tmp_path: Path) -> None:
    """The first model of the script is the teacher, so the student's paths begin with its class."""
    program = pooled("x = x.mean(1); x = x - x.mean(0)").partition("def main")[0] + TEACHER
    (finding,) = run(tmp_path, program).findings
    assert finding.code == "DK305"
    assert finding.location.module == "Encoder.head"


def test_what_the_experiments_change_is_restored(tmp_path: Path) -> None:
    """A script may go on to use its model: at exit, or because another module holds it."""
    program = pooled(end="import copy, sys; sys.kept = model, copy.deepcopy(model.state_dict())")
    report = run(tmp_path, program)
    import sys

    model, before = sys.kept  # type: ignore[attr-defined]
    del sys.kept  # type: ignore[attr-defined]
    assert "DK303" in report.examined
    assert model.training
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


OUTSIDE = (
    GENERATOR.replace("idx, targets=None", "x")
    .replace("self.table(idx)", "self.table(x)")
    .partition("        loss = None")[0]
    + """        return logits

torch.manual_seed(0)
model = Generator()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(4):
    text = torch.randint(1, 11, (4, {length}))
    optimizer.zero_grad()
    {step}
    loss.backward()
    optimizer.step()
"""
)
STEPS = {
    "rows": (7, "loss = F.cross_entropy(model(text[:, :-1]).view(-1, 11), text[:, 1:].flatten())"),
    "classes first": (7, "loss = nn.CrossEntropyLoss()(model(text[:, :-1]).transpose(1, 2), text[:, 1:])"),
    "shifted after the model": (6, "loss = F.cross_entropy(model(text)[:, :-1].flatten(0, 1), text[:, 1:].flatten())"),
    "another ignored id": (
        7,
        "loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten(), ignore_index=0)",
    ),
    "log probabilities": (
        7,
        "loss = F.nll_loss(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten(), reduction='none').mean()",
    ),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_loss_of_tokens_outside_the_model_is_recognised_by_its_values(
    tmp_path: Path, step: str, causal: bool
) -> None:
    length, line = STEPS[step]
    program = OUTSIDE.format(causal=causal, length=length, step=line)
    if "nll_loss" in line:
        program = program.replace("logits = self.head(x)", "logits = self.head(x).log_softmax(-1)")
    report = run(tmp_path, program, select=["DK304", "DK314"])
    assert [finding.code for finding in report.findings] == ([] if causal else ["DK304"])
    assert report.examined == ("DK304", "DK314")


def test_the_loss_of_other_values_is_not_taken(tmp_path: Path) -> None:
    line = "loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1) * 2, text[:, 1:].flatten())"
    report = run(tmp_path, OUTSIDE.format(causal=False, length=7, step=line), select=["DK304"])
    assert (report.findings, report.examined) == ((), ())


TAGGER = """
import torch
from torch import nn

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8, padding_idx=0)
        self.gru, self.head = nn.GRU(8, 8, batch_first=True), nn.Linear(8, 3)
    def forward(self, words{mask}):
        return self.head(self.gru(self.table(words))[0])

torch.manual_seed(0)
model = Tagger()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(4):
    valid = torch.arange(6)[None] < torch.tensor([6, 4, 5, 2])[:, None]
    words = torch.randint(1, 11, (4, 6)) * valid
    optimizer.zero_grad()
    error = (model(words{given}) - torch.randn(4, 6, 3)).square().mean(-1)
    loss = {loss}
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("mask", [(", attention_mask", ", valid.long()"), ("", "")], ids=["mask", "ids"])
@pytest.mark.parametrize(("loss", "found"), [("error.mean()", ["DK309"]), ("error[valid].mean()", [])])
def test_a_regression_that_counts_padding_is_found_by_its_gradient(
    tmp_path: Path, mask: tuple[str, str], loss: str, found: list[str]
) -> None:
    report = run(tmp_path, TAGGER.format(mask=mask[0], given=mask[1], loss=loss), select=["DK309"])
    assert [finding.code for finding in report.findings] == found
    assert report.examined == ("DK309",)


def test_a_gradient_of_too_large_a_loss_scale_is_left_out(tmp_path: Path) -> None:
    program = TAGGER.format(mask="", given="", loss="(error * valid).sum() * float('inf')")
    assert run(tmp_path, program, select=["DK309"]).findings == ()


def test_the_cache_of_a_model_of_transformers_is_no_obstacle(tmp_path: Path) -> None:
    program = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                                     num_attention_heads=2))
optimizer = torch.optim.AdamW(model.parameters())
mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
for _ in range(4):
    ids = torch.randint(3, 40, mask.shape) * mask
    output = model(input_ids=ids, attention_mask=mask)
    assert output.past_key_values is not None
    output.logits[:, :-1].logsumexp(-1).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    report = run(tmp_path, program, select=["DK303", "DK309"])
    assert report.examined == ("DK303", "DK309")
    assert [finding.code for finding in report.findings] == ["DK309"]


@pytest.mark.parametrize("padded_from", [0, 2, 40])
def test_a_call_with_padding_is_preferred(tmp_path: Path, padded_from: int) -> None:
    """Batches of equal lengths come first, as from a sampler of buckets."""
    lengths = f"[torch.tensor([6, 4, 5, 2]) if n >= {padded_from} else torch.full((4,), 6) for n in range(42)]"
    program = pooled("x = x.mean(1)", lengths=lengths)
    report = run(tmp_path, program, select=["DK303"])
    assert [finding.code for finding in report.findings] == ["DK303"] * (padded_from < 16)
