"""check(): one observed training step and the experiments that the chosen rules need, then judging, then folding.

Every probe is attached to the same step and every experiment runs at most once, however many rules need it. Whatever
cannot be observed makes its rules `not_examined`, with one sentence why; nothing here raises for the model's own
faults.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from debugkit.declare import Declare
from debugkit.experiments import Experiment
from debugkit.finding import Finding, NotExamined, Unexamined
from debugkit.folding import fold
from debugkit.frames import raising_line
from debugkit.probes import Probe
from debugkit.providers import can_observe, experiments_for, probes_for
from debugkit.registry import Context, Mode, Rule, all_rules, choose
from debugkit.report import Report, fingerprint
from debugkit.restore import restored
from debugkit.step import ObservedStep, one_line, quiet_eager
from debugkit.subject import LossFn, Subject

BUDGET = 40.0
"""Forward passes of one batch that all experiments together may cost; the dearest are left out beyond it."""
_PATIENCE_S = 5.0
_STEP_COST = 3.0

Observations = dict[type, object]
Progress = Callable[[str], None]


def check(
    model: nn.Module,
    batch: Any = None,
    loss_fn: LossFn | None = None,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    dataloader: Iterable[Any] | Mapping[str, Iterable[Any]] | None = None,
    select: str | Sequence[str] | None = None,
    ignore: str | Sequence[str] | Mapping[str, str] | None = None,
    device: str | torch.device | None = None,
    declare: Declare | None = None,
    *,
    baseline: str | Path | None = None,
    budget: float = BUDGET,
    progress: Progress | None = None,
) -> Report:
    """Examine a model, its loss and its optimizer before training, and leave everything bit-identical.

    `loss_fn(model, batch)` returns a scalar; by default it is Hugging Face's `model(**batch).loss`. `dataloader` is a
    loader or a mapping of role (`train`, `validation`) to loader. `select` and `ignore` take codes or prefixes
    (`DK1`), as ruff does; `ignore` may map each to the reason, which the report repeats. `baseline` is an earlier
    report's JSON, whose findings are not reported again. `progress` hears a sentence now and then once five seconds
    have passed; by default it is written to stderr. Raises SubjectError for arguments of the wrong kind and
    UnknownCodeError for an unknown code.
    """
    subject = Subject.of(model, batch, loss_fn, optimizer, dataloader, device, declare)
    reasons = _reasons(ignore)
    wanted = choose(all_rules(), _codes(select))
    chosen = choose(wanted, None, reasons)
    ignored = [Unexamined(rule.code, _why_ignored(rule.code, reasons)) for rule in wanted if rule not in chosen]
    report = examine(subject, chosen, budget=budget, progress=progress or _to_stderr)
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
    subject: Subject, rules: Sequence[Rule], *, budget: float = BUDGET, progress: Progress | None = None
) -> Report:
    """Observe what the rules need, each thing once, and judge. The findings are not folded."""
    here = [rule for rule in rules if _belongs_here(rule)]
    elsewhere = [Unexamined(rule.code, _elsewhere(rule)) for rule in rules if rule not in here]
    needed = {kind for rule in here for kind in (*rule.needs, *rule.uses)}
    seen, missing, failure = _observe_step(subject, probes_for(needed))
    _run_experiments(subject, experiments_for(needed), budget, progress, seen, missing)
    findings, examined, unexamined = judge(here, seen, missing, subject.declare, mode="check")
    return Report(
        findings=tuple(findings),
        examined=tuple(examined),
        not_examined=tuple(sorted((*unexamined, *elsewhere), key=lambda entry: entry.code)),
        failure=failure,
        title=_title(subject),
    )


def judge(
    rules: Iterable[Rule],
    seen: Observations,
    missing: Mapping[type, Unexamined],
    declare: Declare,
    *,
    mode: Mode,
    step: int | None = None,
) -> tuple[list[Finding], list[str], list[Unexamined]]:
    """Judge each rule on the observations: (findings, codes examined, rules not examined). Shared with watch()."""
    findings: list[Finding] = []
    examined: list[str] = []
    unexamined: list[Unexamined] = []
    for rule in rules:
        absent = next((kind for kind in rule.needs if kind not in seen), None)
        if absent is not None:
            known = missing.get(absent)
            why = known.why if known else f"Nothing here can observe {absent.__name__}."
            unexamined.append(Unexamined(rule.code, why, known.error if known else None))
            continue
        arguments = [seen[kind] for kind in rule.needs] + [seen.get(kind) for kind in rule.uses]
        try:
            found = list(rule.judge(*arguments, Context(rule, declare, mode, step)))
        except NotExamined as limit:
            unexamined.append(Unexamined(rule.code, str(limit)))
        except Exception as error:
            unexamined.append(Unexamined(rule.code, f"The rule itself failed: {one_line(error)}.", error))
        else:
            findings += found
            examined.append(rule.code)
    return findings, examined, unexamined


def _observe_step(
    subject: Subject, probe_classes: Sequence[type[Probe[Any]]]
) -> tuple[Observations, dict[type, Unexamined], str | None]:
    """Run one observed step with all probes: what was seen, what was not and why, and what ended the step."""
    seen: Observations = {}
    missing: dict[type, Unexamined] = {}
    if not probe_classes:
        return seen, missing, None
    if subject.batch is None:
        why = "No batch was given: pass batch= or dataloader=."
        return seen, {cls.yields: Unexamined("", why) for cls in probe_classes}, None
    probes: list[Probe[Any]] = []
    for cls in probe_classes:
        _attempt(cls.yields, lambda cls=cls: probes.append(cls(subject)), {}, missing)  # type: ignore[misc]
    step = ObservedStep(subject)
    with restored(subject):
        step.run(probes)
        for probe in probes:
            _attempt(probe.yields, lambda probe=probe: step.observation_of(probe), seen, missing)  # type: ignore[misc]
    return seen, missing, step.failure


def _run_experiments(
    subject: Subject,
    experiments: Sequence[Experiment],
    budget: float,
    progress: Progress | None,
    seen: Observations,
    missing: dict[type, Unexamined],
) -> None:
    """Run each experiment that is possible and affordable, cheapest first, and put the subject back after each."""
    spent, began = 0.0, time.monotonic()
    for number, experiment in enumerate(experiments, start=1):
        absent = _absent(subject, experiment)
        if absent is not None:
            missing[experiment.yields] = Unexamined("", absent)
            continue
        if experiment.cost and spent + experiment.cost > budget:
            why = f"It costs {experiment.cost:g} forward passes and the budget of {budget:g} is spent: select it alone."
            missing[experiment.yields] = Unexamined("", why)
            continue
        if progress is not None and time.monotonic() - began > _PATIENCE_S:
            progress(f"experiment {number} of {len(experiments)}: {experiment.run.__name__.replace('_', ' ')}")
        with restored(subject), quiet_eager(subject.model):
            _attempt(experiment.yields, lambda run=experiment.run: run(subject), seen, missing)  # type: ignore[misc]
        if experiment.yields in seen:
            spent += experiment.cost  # one that stood aside did so before it cost anything to speak of


def _attempt(kind: type, make: Callable[[], object], seen: Observations, missing: dict[type, Unexamined]) -> None:
    """Keep what `make` returns; an exception becomes the reason why there is nothing."""
    try:
        seen[kind] = make()
    except NotExamined as limit:
        missing[kind] = Unexamined("", str(limit))
    except Exception as error:
        line = raising_line(error.__traceback__)
        if line is None:
            missing[kind] = Unexamined("", f"Observing it raised {one_line(error)}.", error)
        else:
            missing[kind] = Unexamined("", f"The model raised {one_line(error)} at {line.file}:{line.line}.")


def _absent(subject: Subject, experiment: Experiment) -> str | None:
    if "batch" in experiment.requires and subject.batch is None:
        return "No batch was given: pass batch= or dataloader=."
    if "optimizer" in experiment.requires and not subject.optimizers:
        return "No optimizer was given: pass optimizer=."
    if "dataloader" in experiment.requires and not subject.loaders:
        return "No data loader was given: pass dataloader=."
    return None


def _belongs_here(rule: Rule) -> bool:
    """Not those that only other verbs judge, nor those whose observations watch() alone can make."""
    mine = bool({"check", "loader"} & set(rule.modes))
    return mine and ("watch" not in rule.modes or can_observe(rule.needs))


def _elsewhere(rule: Rule) -> str:
    if "watch" in rule.modes:
        return "It needs a running loop: use debugkit.watch()."
    if "distributed" in rule.modes:
        return "It needs several processes: use `debugkit doctor --distributed` and debugkit.watch() on every rank."
    return "It reads a configuration: call debugkit.integrations.hydra.check_config()."


def _codes(select: str | Sequence[str] | None) -> Sequence[str] | None:
    return [select] if isinstance(select, str) else select


def _reasons(ignore: str | Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
    if isinstance(ignore, Mapping):
        return {prefix.upper(): reason for prefix, reason in ignore.items()}
    return dict.fromkeys((prefix.upper() for prefix in _codes(ignore) or ()), "")


def _why_ignored(code: str, reasons: Mapping[str, str]) -> str:
    reason = reasons[max((prefix for prefix in reasons if code.startswith(prefix)), key=len)]
    return f"Ignored: {reason}" if reason else "Ignored by the caller."


def _known(baseline: str | Path | None) -> set[tuple[str, str, str, str]]:
    if baseline is None:
        return set()
    try:
        return {fingerprint(finding) for finding in json.loads(Path(baseline).read_text(encoding="utf-8"))["findings"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{baseline} is no debugkit report in JSON ({one_line(error)}): write one with save_json()."
        ) from None


def _title(subject: Subject) -> str:
    parameters = {id(parameter): parameter for parameter in subject.model.parameters()}.values()
    total = sum(parameter.numel() for parameter in parameters)
    trainable = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    return f"{type(subject.model).__name__}, {total:,} parameters, {trainable:,} trainable"


def _to_stderr(sentence: str) -> None:
    sys.stderr.write(f"debugkit: {sentence}\n")
