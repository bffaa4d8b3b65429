"""check(): observe one training step, run the experiments that the selected rules need, then judge and fold.

All probes are attached to the same step. Each experiment runs at most once, even if several rules need it. If an
observation cannot be made, its rules are `not_examined`, with the reason in one sentence. An exception of the model is
never raised.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from debugkit.declare import Declare
from debugkit.finding import NotExamined, Unexamined
from debugkit.frames import one_line, raising_line
from debugkit.judging import Observations, judge
from debugkit.observation import Measurement, functions_of, measurement_of, probes_of
from debugkit.plain_data import at_line
from debugkit.preserve_state import preserved
from debugkit.probe import Probe
from debugkit.report import Report, fingerprint
from debugkit.root_cause import fold
from debugkit.rule import Rule, all_rules, choose, codes_in
from debugkit.rule_text import counted
from debugkit.setup import LossFn, TrainingSetup
from debugkit.spending import Spending, Stopwatch
from debugkit.step import ObservedStep, quiet_eager

_PATIENCE_S = 2.0


def check(
    model: nn.Module,
    batch: Any = None,
    loss_fn: LossFn | None = None,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    *,
    dataloader: Iterable[Any] | Mapping[str, Iterable[Any]] | None = None,
    select: str | Sequence[str] | None = None,
    ignore: str | Sequence[str] | Mapping[str, str] | None = None,
    device: str | torch.device | None = None,
    declare: Declare | None = None,
    baseline: str | Path | None = None,
    budget: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Examine a model, its loss, its optimizer and its data before training. Everything stays bit-identical.

    One training step is observed on `batch`, or on the first batch of `dataloader`; further experiments use copies
    of that batch. An exception of the model is not raised; it becomes the `failure` of the report. All arguments after
    `optimizer` are keyword-only.

    Args:
        model: the module that is trained.
        batch: one batch, as the loop passes it to `loss_fn`.
        loss_fn: `loss_fn(model, batch)` returns a scalar tensor; the default is `model(**batch).loss`.
        optimizer: the optimizer, or several.
        dataloader: a loader, or a mapping of role (`"train"`, `"validation"`) to loader.
        select: codes or prefixes (`"DK1"`) of the rules to examine, as in ruff; all by default. A list of them, or a
            string with commas.
        ignore: codes or prefixes to leave out, or a mapping of each to a reason, which the report shows.
        device: the device for the rules about devices; by default CUDA, simulated if it is not available.
        declare: facts that no tool can infer.
        baseline: path of an earlier report in JSON; its findings are listed in `known` instead of `findings`.
        budget: the total cost of all experiments, in forward passes of one batch; by default 40, or more if they take
            less than five seconds.
        progress: called with the expected duration if it is more than two seconds, and with a progress message after
            the first two; by default they are written to stderr if it is a terminal.

    Raises SetupError if an argument is of the wrong kind, UnknownCodeError if a code matches no rule, and ValueError if
    `baseline` cannot be read.
    """
    setup = TrainingSetup.of(model, batch, loss_fn, optimizer, dataloader, device, declare)
    reasons = _reasons(ignore)
    wanted = choose(all_rules(), codes_in(select))
    chosen = choose(wanted, None, reasons)
    ignored = [Unexamined(rule.code, _why_ignored(rule.code, reasons)) for rule in wanted if rule not in chosen]
    report = examine(setup, chosen, budget=budget, progress=progress or to_a_terminal)
    known = _known(baseline)
    return Report(
        findings=fold(finding for finding in report.findings if fingerprint(finding) not in known),
        examined=report.examined,
        not_examined=tuple(sorted((*report.not_examined, *ignored), key=lambda entry: entry.code)),
        failure=report.failure,
        title=report.title,
        known=tuple(finding for finding in report.findings if fingerprint(finding) in known),
    )


def examine(
    setup: TrainingSetup,
    rules: Sequence[Rule],
    *,
    budget: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Make each observation that the rules need once, and judge. The findings are not folded."""
    here = [rule for rule in rules if _belongs_here(rule)]
    elsewhere = [Unexamined(rule.code, _elsewhere(rule)) for rule in rules if rule not in here]
    needed = {kind for rule in here for kind in (*rule.needs, *rule.uses)}
    stopwatch = Stopwatch()
    seen, missing, failure = _observe_step(setup, probes_of(needed))
    spending = Spending(budget, stopwatch.seconds if seen and failure is None else 0.0)
    _run_measurements(setup, functions_of(needed), spending, progress, seen, missing, failure)
    findings, examined, unexamined = judge(here, seen, missing, setup.declare, mode="check")
    return Report(
        findings=tuple(findings),
        examined=tuple(examined),
        not_examined=tuple(sorted((*unexamined, *elsewhere), key=lambda entry: entry.code)),
        failure=failure,
        title=_title(setup),
    )


def _observe_step(
    setup: TrainingSetup, measurements: Sequence[Measurement]
) -> tuple[Observations, dict[type, Unexamined], str | None]:
    """Run one observed step with all probes. Returns observations, missing ones with reasons, and the failure."""
    seen: Observations = {}
    missing: dict[type, Unexamined] = {}
    if not measurements:
        return seen, missing, None
    if setup.batch is None:
        why = "No batch was given: pass batch= or dataloader=."
        return seen, {one.observation: Unexamined("", why) for one in measurements}, None
    probes: list[Probe[Any]] = []
    for one in measurements:
        _attempt(one.observation, lambda one=one: probes.append(one.load()(setup)), {}, missing)  # type: ignore[misc]
    step = ObservedStep(setup)
    with preserved(setup):
        step.run(probes)
        for probe in probes:
            _attempt(probe.yields, lambda probe=probe: step.observation_of(probe), seen, missing)  # type: ignore[misc]
    return seen, missing, step.failure


def _run_measurements(
    setup: TrainingSetup,
    measurements: Sequence[Measurement],
    spending: Spending,
    progress: Callable[[str], None] | None,
    seen: Observations,
    missing: dict[type, Unexamined],
    failure: str | None,
) -> None:
    """Run each active measurement that is possible and affordable, and restore the setup after each.

    Those that test what the user declared come first, then the cheapest.
    """
    began = time.monotonic()
    ordered = sorted(measurements, key=lambda one: not _was_declared(setup, one))
    if progress is not None:
        _announce(setup, ordered, spending, progress)
    for number, one in enumerate(ordered, start=1):
        absent = _absent(setup, one)
        if absent is not None:
            missing[one.observation] = Unexamined("", absent)
            continue
        if not spending.affords(one.cost):
            why = f"It costs {one.cost:g} forward passes and {spending.spent}: select it alone."
            missing[one.observation] = Unexamined("", why)
            continue
        stopwatch = Stopwatch()
        if progress is not None and time.monotonic() - began > _PATIENCE_S:
            progress(f"measurement {number} of {len(ordered)}: {one.name}")
        with preserved(setup), quiet_eager(setup.model):
            _attempt(one.observation, lambda one=one: one.load()(setup), seen, missing, failure)  # type: ignore[misc]
        if one.observation in seen:  # a measurement that does not apply stops early
            spending.spend(one.cost, stopwatch.seconds)


def _announce(
    setup: TrainingSetup, measurements: Sequence[Measurement], spending: Spending, progress: Callable[[str], None]
) -> None:
    """Say how much will run, if one would notice."""
    costs = [one.cost for one in measurements if _absent(setup, one) is None]
    passes = min(sum(costs), spending.most_passes)
    if (seconds := spending.expected_seconds(passes)) > _PATIENCE_S:
        progress(
            f"up to {counted(len(costs), 'measurement')}, {passes:g} forward passes of the batch, about {seconds:.0f} s"
        )


def _attempt(
    kind: type,
    make: Callable[[], object],
    seen: Observations,
    missing: dict[type, Unexamined],
    failure: str | None = None,
) -> None:
    """Store the result of `make`. An exception becomes the reason why the observation is missing.

    If the exception repeats the `failure` of the step, the measurement is not at fault.
    """
    try:
        seen[kind] = make()
    except NotExamined as limit:
        missing[kind] = Unexamined("", str(limit))
    except Exception as error:
        line = raising_line(error.__traceback__)
        if failure is not None and one_line(error) in failure:
            missing[kind] = Unexamined("", failure)
        elif line is None:
            missing[kind] = Unexamined("", f"Observing it raised {one_line(error)}.", error)
        else:
            missing[kind] = Unexamined("", f"The model raised {one_line(error)}{at_line(line)}.")


def _was_declared(setup: TrainingSetup, measurement: Measurement) -> bool:
    return measurement.declared is not None and getattr(setup.declare, measurement.declared) is not None


def _absent(setup: TrainingSetup, measurement: Measurement) -> str | None:
    if "batch" in measurement.requires and setup.batch is None:
        return "No batch was given: pass batch= or dataloader=."
    if "loss" in measurement.requires and not setup.knows_loss:
        return "How the loss is computed from the model's output is not known: use debugkit.check() with loss_fn=."
    if "samples" in measurement.requires and not setup.knows_samples:
        return "Which dimension of the model's inputs is the batch is not known: use debugkit.check()."
    if "optimizer" in measurement.requires and not setup.optimizers:
        return "No optimizer was given: pass optimizer=."
    if "dataloader" in measurement.requires and not setup.loaders:
        return "No data loader was given: pass dataloader=."
    return None


def _belongs_here(rule: Rule) -> bool:
    """Whether check() examines the rule. It does not if only watch() can make the required observations."""
    mine = bool({"check", "loader"} & set(rule.modes))
    return mine and ("watch" not in rule.modes or _can_be_measured(rule))


def _can_be_measured(rule: Rule) -> bool:
    return all(measurement_of(kind).kind != "provided" for kind in rule.needs)


def _elsewhere(rule: Rule) -> str:
    if "watch" in rule.modes:
        return "It needs a running loop: use debugkit.watch()."
    if "distributed" in rule.modes:
        return "It needs several processes: use `debugkit doctor --distributed` and debugkit.watch() on every rank."
    return "It reads a configuration: call debugkit.integrations.hydra.check_config()."


def _reasons(ignore: str | Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
    if isinstance(ignore, Mapping):
        return {prefix.upper(): reason for prefix, reason in ignore.items()}
    return dict.fromkeys((prefix.upper() for prefix in codes_in(ignore) or ()), "")


def _why_ignored(code: str, reasons: Mapping[str, str]) -> str:
    reason = reasons[max((prefix for prefix in reasons if code.startswith(prefix)), key=len)]
    return f"Ignored: {reason}" if reason else "Ignored by the caller."


def _known(baseline: str | Path | None) -> set[tuple[str, str, str, str]]:
    """The fingerprints of all findings of the baseline, including its `known` findings."""
    if baseline is None:
        return set()
    try:
        report = Report.from_json(Path(baseline))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{baseline} is not a debugkit report in JSON ({one_line(error)}): write one with save_json()."
        ) from None
    return {fingerprint(finding) for finding in (*report.findings, *report.known)}


def _title(setup: TrainingSetup) -> str:
    parameters = {id(parameter): parameter for parameter in setup.model.parameters()}.values()
    total = sum(parameter.numel() for parameter in parameters)
    trainable = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    return f"{type(setup.model).__name__}, {total:,} parameters, {trainable:,} trainable"


def to_a_terminal(sentence: str) -> None:
    """Write a progress message to stderr if it is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"debugkit: {sentence}\n")
