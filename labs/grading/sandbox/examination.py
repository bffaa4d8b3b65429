"""Runs debugkit on a lab's `subject()`, in the child: a pre-flight check, its loop under watch(), its configuration."""

from __future__ import annotations

import json
from typing import Any


def examine(subject: dict[str, Any]) -> dict[str, Any]:
    """The report of both, in the form of `Report.to_json()`; `loop_raised` says so where the loop did.

    `failure` is the exception that ended the observed step or else the loop, in one sentence; None if both ran through.

    `subject` holds `debugkit.check`'s arguments, and optionally `loop`, a callable that trains a few steps, and
    `config`, the arguments of `debugkit.integrations.hydra.check_config`, with or without a model beside it.
    """
    arguments = dict(subject)
    config = arguments.pop("config", None)
    if config is None:
        return _of_the_model(arguments)
    configured = _of_the_configuration(config)
    if not arguments:
        return configured
    report = _of_the_model(arguments)
    return {**merge(report, configured), "failure": report["failure"] or configured["failure"]}


def _of_the_configuration(config: dict[str, Any]) -> dict[str, Any]:
    from debugkit.integrations.hydra import check_config

    report = check_config(**config)
    return {**_plain(report), "failure": report.failure}


def _of_the_model(arguments: dict[str, Any]) -> dict[str, Any]:
    import debugkit

    loop = arguments.pop("loop", None)
    checked = debugkit.check(**arguments)
    report = {**_plain(checked), "failure": checked.failure}
    if loop is None:
        return report
    raised: str | None = None
    with debugkit.watch(arguments["model"], arguments.get("optimizer"), on_finding=_ignore) as run:
        try:
            loop()
        except Exception as error:  # a loud lab's loop is meant to raise; what was seen until then counts
            raised = f"{type(error).__name__}: {error}"
    failure = checked.failure or (f"The training loop raised {raised}." if raised else None)
    return {**merge(report, _plain(run.report)), "loop_raised": raised, "failure": failure}


def merge(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two reports as one: a finding that both made at the same place is told once."""
    findings = list(first["findings"])
    told = {_place(finding) for finding in findings}
    findings += [finding for finding in second["findings"] if _place(finding) not in told]
    examined = list(dict.fromkeys([*first["examined"], *second["examined"]]))
    not_examined = [one for one in first["not_examined"] if one["code"] not in examined]
    return {**first, "findings": findings, "examined": examined, "not_examined": not_examined}


def _place(finding: dict[str, Any]) -> tuple[Any, ...]:
    location = finding.get("location") or {}
    return (finding["code"], location.get("module"), location.get("parameter"))


def _plain(report: Any) -> dict[str, Any]:
    """The report as plain data; its JSON may be text, and tensors in the evidence become numbers on the way."""
    found = report.to_json()
    plain: dict[str, Any] = json.loads(found) if isinstance(found, str) else found
    return plain


def _ignore(finding: object) -> None:
    """Findings are read from the report."""
