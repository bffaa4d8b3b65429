"""Runs debugkit on a lab's `subject()` in the child: pre-flight check, loop under watch(), configuration."""

from __future__ import annotations

from typing import Any


def diagnose(subject: dict[str, Any]) -> dict[str, Any]:
    """One report of all of them, in the form of `Report.to_json()`, with `failure` and `loop_raised`.

    `failure` is the exception that ended the observed step, or else the loop, in one sentence; None if both ran to
    their end. `loop_raised` is the loop's exception, or None.

    `subject` holds `debugkit.check`'s arguments, and optionally `loop`, a callable that trains a few steps, and
    `config`, the arguments of `debugkit.integrations.hydra.check_config`, with or without a model beside it.
    """
    report = _examined(dict(subject))
    ok = report["failure"] is None and all(finding["severity"] == "info" for finding in report["findings"])
    return {**report, "ok": ok}  # of the parts together


def _examined(arguments: dict[str, Any]) -> dict[str, Any]:
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
    return {**report.to_json(), "failure": report.failure}


def _of_the_model(arguments: dict[str, Any]) -> dict[str, Any]:
    import debugkit
    from debugkit.report import DebugkitError

    loop = arguments.pop("loop", None)
    checked = debugkit.check(**arguments)
    report = {**checked.to_json(), "failure": checked.failure}
    if loop is None:
        return report
    run = debugkit.watch(arguments["model"], arguments.get("optimizer"), on_finding=_ignore)
    raised: str | None = None
    try:
        with run:
            loop()
    except DebugkitError:
        raise
    except Exception as error:  # a loud lab's loop raises by design; what was found until then counts
        raised = f"{type(error).__name__}: {error}"
    failure = checked.failure or (f"The training loop raised {raised}." if raised else None)
    return {**merge(report, run.report.to_json()), "loop_raised": raised, "failure": failure}


def merge(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two reports as one. A finding that both have at the same place is kept once."""
    findings = list(first["findings"])
    known = {_place(finding) for finding in findings}
    findings += [finding for finding in second["findings"] if _place(finding) not in known]
    examined = list(dict.fromkeys([*first["examined"], *second["examined"]]))
    not_examined = [one for one in first["not_examined"] if one["code"] not in examined]
    return {**first, "findings": findings, "examined": examined, "not_examined": not_examined}


def _place(finding: dict[str, Any]) -> tuple[Any, ...]:
    location = finding.get("location") or {}
    return (finding["code"], location.get("module"), location.get("parameter"))


def _ignore(finding: object) -> None:
    """Findings are read from the report."""
