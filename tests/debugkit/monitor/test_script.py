"""`debugkit run`: an unmodified script is found out, and behaves as under `python`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers

from debugkit.script import ScriptRun, watch_script

TRAINING = """
import sys
import torch
from torch import nn
from torch.optim import optimizer as optimizers
from beside import WIDTH

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, 2)
    def forward(self, *, state):
        action = self.head(state)
        {body}

def main():
    torch.manual_seed(0)
    policy, critic = Policy(), nn.Linear(2, 1)
    optimizer = torch.optim.AdamW([*policy.parameters(), *critic.parameters()])
    for _ in range(5):
        {reset}
        loss = critic(policy(state=torch.randn(4, WIDTH))).square().mean()
        loss.backward()
        optimizer.step()
    print("loss", loss.item(), sys.argv[1:], __name__)
    {end}

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("WIDTH = 3\n")
    return tmp_path


def run(folder: Path, *, body: str = "return action", reset: str = "optimizer.zero_grad()", end: str = "") -> ScriptRun:
    script = folder / "train.py"
    script.write_text(TRAINING.format(body=body, reset=reset, end=end))
    return watch_script(script, ["--steps", "5"], select=["DK2", "DK5"])


def global_hooks() -> tuple[int, ...]:
    modules = nn.modules.module
    return (
        len(modules._global_forward_hooks),
        len(modules._global_forward_pre_hooks),
        len(modules._global_forward_hooks_with_kwargs),
        len(optimizers._global_optimizer_pre_hooks),
        len(optimizers._global_optimizer_post_hooks),
        torch._C._len_torch_function_stack(),
    )


def test_a_script_sees_its_arguments_and_prints_what_it_would(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.argv, list(sys.path), sys.modules["__main__"], global_hooks()
    outcome = run(folder)
    printed = capsys.readouterr().out
    assert printed.endswith("['--steps', '5'] __main__\n")
    assert (outcome.exit_code, outcome.error, outcome.report.findings, outcome.report.failure) == (0, None, (), None)
    assert {"DK201", "DK202", "DK501"} <= set(outcome.report.examined)
    assert (sys.argv, list(sys.path), sys.modules["__main__"], global_hooks()) == before
    sys.path.insert(0, str(folder))
    exec(compile((folder / "train.py").read_text(), "train.py", "exec"), {"__name__": "__main__"})
    sys.path.remove(str(folder))
    assert capsys.readouterr().out.split()[1] == printed.split()[1], "the loss differs from the unwatched run's"


def test_the_line_of_the_script_is_named(folder: Path) -> None:
    outcome = run(folder, body="return (action - action.detach()).square().sqrt()")
    finding = outcome.report.findings[0]
    assert (finding.code, finding.location.module) == ("DK202", "")
    assert finding.location.file == str(folder / "train.py")
    assert "SqrtBackward0" in finding.message


def test_gradients_that_a_script_never_resets_are_found(folder: Path) -> None:
    outcome = run(folder, reset="pass")
    assert [finding.code for finding in outcome.report.findings] == ["DK501"]


@pytest.mark.parametrize(
    ("end", "code", "failure"),
    [
        ("sys.exit(7)", 7, "The script exited with code 7."),
        ("sys.exit()", 0, None),
        ("sys.exit('no data')", 1, "The script exited with code 1."),
        ("raise ValueError('planted')", 1, "The script raised ValueError: planted."),
        ("raise KeyboardInterrupt", 130, "The script raised KeyboardInterrupt."),
    ],
)
def test_exit_codes_and_exceptions_are_those_of_python(
    folder: Path, end: str, code: int, failure: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    before = global_hooks()
    outcome = run(folder, end=end)
    assert (outcome.exit_code, outcome.report.failure) == (code, failure)
    assert global_hooks() == before
    told = capsys.readouterr().err
    if "planted" in end:
        assert "ValueError: planted" in told
        assert "runpy" not in told, "the traceback begins in the script"
    if "no data" in end:
        assert "no data" in told


def test_both_models_of_a_script_are_watched(folder: Path) -> None:
    outcome = run(folder, body="return action * 1e30")
    finding = next(finding for finding in outcome.report.findings if finding.code == "DK201")
    assert "Inf" in finding.message or "NaN" in finding.message


ALTERNATING = """
import torch
from torch import nn

torch.manual_seed(0)
policy, critic = nn.Linear(3, 2), nn.Linear(2, 1)
policy_optimizer = torch.optim.AdamW(policy.parameters())
critic_optimizer = torch.optim.AdamW(critic.parameters())
for _ in range(4):
    for _ in range(3):
        critic_optimizer.zero_grad()  # before the first forward
        critic(policy(torch.randn(4, 3)).detach()).square().mean().backward()
        critic_optimizer.step()
    policy_optimizer.zero_grad()
    critic(policy(torch.randn(4, 3))).mean().backward()
    policy_optimizer.step()
"""


def test_an_optimizer_that_steps_later_is_waited_for(folder: Path) -> None:
    """One that was seen before the model was called is not taken for the only one."""
    script = folder / "train.py"
    script.write_text(ALTERNATING)
    report = watch_script(script, [], select=["DK101", "DK102", "DK103"]).report
    assert report.findings == ()
    assert "DK101" in report.examined


def test_a_parameter_that_no_optimizer_of_a_script_holds_is_found(folder: Path) -> None:
    script = folder / "train.py"
    script.write_text(ALTERNATING.replace("AdamW(policy.parameters())", "AdamW([policy.weight])"))
    report = watch_script(script, [], select=["DK101"]).report
    assert [(finding.code, finding.location.parameter) for finding in report.findings] == [("DK101", "bias")]


def test_a_checkpoint_that_a_script_loads_before_its_loop_is_observed(folder: Path) -> None:
    script = folder / "train.py"
    lines = ALTERNATING.partition("for _ in range(4)")
    load = "policy.load_state_dict({'module.weight': torch.zeros(2, 3)}, strict=False)\n"
    script.write_text(lines[0] + load + "".join(lines[1:]))
    (finding,) = watch_script(script, [], select=["DK118"]).report.findings
    assert finding.location.file == str(script)
    assert finding.location.line == 1 + lines[0].count("\n")


BY_METHODS = """
import torch
from torch import nn

class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.width = self.first(torch.zeros(1, 3)).shape[1]
        self.second = nn.Linear(self.width, 3)
        self.others = {others}
    def log_prob(self, x):
        x = self.second(self.first(x).tanh())
        for other in self.others:
            x = other(x)
        return -x.square().sum(-1)

def fit(flow):
    optimizer = torch.optim.Adam(flow.parameters())
    for _ in range(12):
        optimizer.zero_grad()
        {loss}.backward()
        optimizer.step()

torch.manual_seed(0)
fit(Flow())
"""
BY_METHOD = "flow.log_prob(torch.randn(4, 3)).mean().neg()"


@pytest.mark.parametrize("loss", [BY_METHOD, "flow.second(flow.first(torch.randn(4, 3))).square().mean()"])
def test_a_model_that_is_not_called_itself_is_watched_as_a_whole(folder: Path, loss: str) -> None:
    """Its methods or its parts are called, and a part before the model is complete."""
    script = folder / "train.py"
    program = BY_METHODS.format(others="[]", loss=loss)
    script.write_text(program.replace("Adam(flow.parameters())", "Adam(flow.first.parameters())"))
    (finding,) = watch_script(script, [], select=["DK101"]).report.findings
    assert finding.message.startswith("2 of 4 trainable parameters receive a gradient")
    assert finding.location.module == "second"


def test_layers_in_a_list_of_such_a_model_are_found_once(folder: Path) -> None:
    script = folder / "train.py"
    program = BY_METHODS.format(others="[nn.Linear(3, 3)]", loss=BY_METHOD)
    script.write_text(program)
    (finding,) = watch_script(script, [], select=["DK101"]).report.findings
    assert finding.location.parameter == "others.0.weight"
    assert finding.location.line == 1 + program[: program.index("optimizer = ")].count("\n")


COMPILED = """
import torch
from torch import nn

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    def forward(self, *, state):
        return self.body(state)

policy = Policy()
{compile}
optimizer = torch.optim.Adam(policy.parameters())
for _ in range(4):
    optimizer.zero_grad()
    policy(state=torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("how", ["policy = torch.compile(policy, backend='eager')", "policy.compile(backend='eager')"])
def test_a_compiled_model_is_watched_without_a_trace(folder: Path, how: str, recwarn: pytest.WarningsRecorder) -> None:
    """The hook that reads the first call's keywords must not be traced into the model."""
    torch._dynamo.reset()
    script = folder / "train.py"
    script.write_text(COMPILED.format(compile=how))
    outcome = watch_script(script, [])
    assert (outcome.exit_code, outcome.report.failure, outcome.report.findings) == (0, None, ())
    assert {"DK101", "DK501"} <= set(outcome.report.examined)
    assert not [warning for warning in recwarn if "global hooks" in str(warning.message)]


DISTRIBUTED = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)

def fit(net):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(12):
        optimizer.zero_grad()
        {model}(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()

fit(nn.Linear(3, 2))
fit(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("model", ["model", "model.module"])
def test_a_call_through_a_wrapper_is_told_from_one_that_bypasses_it(folder: Path, model: str) -> None:
    """In each stage the wrapper is found, and its probes are attached, while its first call runs."""
    script = folder / "train.py"
    program = DISTRIBUTED.format(model=model)
    script.write_text(program)
    report = watch_script(script, [], select=["DK803"]).report
    places = [(finding.location.module, finding.location.line) for finding in report.findings]
    line = 1 + program[: program.index(".square()")].count("\n")
    bypassed = [("module", line), ("DistributedDataParallel.module", line)]
    assert places == (bypassed if model == "model.module" else [])
    assert report.examined == ("DK803",)


def test_the_report_of_one_of_several_processes_names_its_rank(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = folder / "train.py"
    script.write_text(LATE)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert watch_script(script, []).report.title == "train.py (rank 1 of 2), 4 steps watched"
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert watch_script(script, []).report.title == "train.py, 4 steps watched"


TRAJECTORIES = """
import torch


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(2, 2)

    def forward(self, state, action):
        return {"loss": (self.head(state) - action).abs().mean()}


torch.manual_seed(0)
model = Policy()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
action = torch.randn(6, STEPS, 2)
change = action.roll(LAG, dims=1) + NOISE * torch.randn(6, STEPS, 2)
state = torch.cat([torch.zeros(6, 1, 2), change.cumsum(1)[:, :-1]], dim=1)
for _ in range(3):
    optimizer.zero_grad()
    model(state=state, action=action)["loss"].backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("steps", "lag", "noise", "said"),
    [
        (30, 2, 0, "follows the action 2 steps later"),
        (40, -1, 0.2, "moves 1 step before"),
        (30, 0, 0, ""),
        (30, 2, 5, ""),
    ],
    ids=["late", "early", "together", "noise"],
)
def test_a_lag_of_actions_in_a_call_of_the_model_is_named(
    folder: Path, steps: int, lag: int, noise: float, said: str
) -> None:
    script = folder / "train.py"
    script.write_text(TRAJECTORIES.replace("STEPS", str(steps)).replace("LAG", str(lag)).replace("NOISE", str(noise)))
    report = watch_script(script, [], select=["DK403"]).report
    assert report.examined == ("DK403",)
    assert [(str(f.severity), said in f.message, f.location.input) for f in report.findings] == [
        ("info", True, "action")
    ] * bool(said)


STARTS_PROCESSES = """
import concurrent.futures
import multiprocessing

import torch
from torch.utils.data import DataLoader, TensorDataset


def train(_=0):
    model = torch.nn.Linear(4, 2)
    model(torch.ones(2, 4)).sum().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()


context = multiprocessing.get_context("fork")
"""
IN_A_PROCESS = "process = context.Process(target=train); process.start(); process.join()\n"


@pytest.mark.parametrize(
    ("loop", "number"),
    [
        (IN_A_PROCESS, "1 process, which is"),
        ("with concurrent.futures.ProcessPoolExecutor(1, context) as pool: pool.submit(train).result()\n", "1 process"),
        ("with context.Pool(2) as pool: pool.map(train, range(2))\n", "2 processes, which are"),
        ("train(); " + IN_A_PROCESS, None),
        ("list(DataLoader(TensorDataset(torch.ones(8, 4)), num_workers=1))\n", None),
        ("", None),
    ],
    ids=["process", "executor", "pool", "own_loop_too", "loader", "none"],
)
def test_a_loop_in_processes_that_the_script_starts_is_named(folder: Path, loop: str, number: str | None) -> None:
    script = folder / "train.py"
    script.write_text(STARTS_PROCESSES + loop)
    report = watch_script(script, [], select=["DK1", "DK305"]).report
    reasons = {entry.why for entry in report.not_examined if "The script started" in entry.why}
    assert len(reasons) == (number is not None)
    text = " ".join(report.to_text().split())
    assert ("0 steps watched, in this process" in text) == (number is not None)
    if number is not None:
        assert f"No rule was examined. The script started {number}" in text
        assert "--no-python debugkit run train.py`" in text


LATE = """
import torch
from torch import nn

model = nn.Linear(3, 2)
with torch.no_grad():
    model(torch.randn(4, 3))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
"""


def test_what_debugkit_computes_when_an_optimizer_appears_is_no_line_of_the_script(folder: Path) -> None:
    """The model is watched before the optimizer is known, as where a policy acts before it is trained."""
    script = folder / "train.py"
    script.write_text(LATE)
    report = watch_script(script, [], select=["DK009"]).report
    assert (report.findings, report.examined) == ((), ("DK009",))
