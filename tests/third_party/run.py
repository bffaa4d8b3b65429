"""Run training scripts of public repositories under `debugkit run`, unmodified, and record every finding with the date.

    python tests/third_party/fetch.py ~/third_party
    python tests/third_party/run.py ~/third_party                 # all of them; writes tests/third_party/record.json
    python tests/third_party/run.py ~/third_party --only vae      # some, by a part of the name

The exit status is 1 if a script did not run: it left no report, or it ended without a step of an optimizer, as with a
ModuleNotFoundError, in another way than the manifest's `no_step` expects.

Not collected by pytest: the scripts are fetched, take minutes, and change with the versions of torch. readings.toml
says of each finding whether it is right, and docs/debugkit/third_party.md shows both.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import torch
from manifest import HERE, Script, scripts
from prepare import RECIPES

ROOT = HERE.parents[1]
RECORD = HERE / "record.json"
GRACE = 60
"""Seconds of processor time for the report after a run was interrupted."""


SITE = os.environ.get("THIRD_PARTY_SITE", "")
"""A folder with packages that a script needs and this environment lacks, such as h5py."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scripts one after the other. Returns 1 if one did not run."""
    parser = argparse.ArgumentParser(
        description="Run the fetched scripts under `debugkit run`.",
        epilog="The exit status is 1 if a script left no report or unexpectedly made no step of an optimizer.",
    )
    parser.add_argument("folder", type=Path, help="where fetch.py put the scripts")
    parser.add_argument("--only", default="", help="a part of the names of the scripts to run")
    parser.add_argument("--logs", type=Path, help="a folder for what the scripts print")
    options = parser.parse_args(arguments)
    sys.path += [SITE] if SITE else []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
    if not options.only:
        RECORD.unlink(missing_ok=True)
    chosen = [script for script in scripts() if options.only in script.name]
    ran = []
    for script in chosen:
        ran.append(one(script, options.folder.resolve(), options.logs))
        write(ran[-1:])
        sys.stdout.write(line(ran[-1]))
        sys.stdout.flush()
    missing = [result["name"] for script, result in zip(chosen, ran, strict=True) if not as_expected(script, result)]
    if missing:
        sys.stdout.write(f"Did not run: {', '.join(missing)}\n")
    return int(bool(missing))


def as_expected(script: Script, result: dict[str, Any]) -> bool:
    """Whether a script made a step of an optimizer, or failed to in the way that the manifest names."""
    if script.not_run or result["steps"]:
        return True
    return bool(script.no_step) and script.no_step in result["failure"]


def write(ran: Sequence[dict[str, Any]]) -> None:
    """Put what ran into the record, in the manifest's order; other scripts keep their results."""
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {"scripts": []}
    known = {result["name"]: result for result in (*record["scripts"], *ran)}
    order = [script.name for script in scripts() if script.name in known]
    record = {"note": record.get("note", "")} | {
        "date": f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}",
        "torch": torch.__version__,
        "scripts": [known[name] for name in order],
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def line(result: dict[str, Any]) -> str:
    """One line for one script, and one for each finding."""
    head = f"{result['name']}: {result['steps']} steps, {result['seconds']} s. {result['failure']}\n"
    return head + "".join(f"    {f['severity']} {f['code']} {f['place']}: {f['message']}\n" for f in result["findings"])


def one(script: Script, folder: Path, logs: Path | None = None) -> dict[str, Any]:
    """What the run of one script gave: how it ended, its steps, its findings, and what was not examined."""
    result: dict[str, Any] = {"name": script.name, "steps": 0, "seconds": 0, "findings": [], "not_examined": []}
    if script.not_run:
        return result | {"failure": "Not run: " + script.not_run}
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary).resolve() / "a" / "b" / "work"
        place.mkdir(parents=True)
        for recipe in script.prepare:
            RECIPES[recipe](place, folder)
        began = time.monotonic()
        output, interrupted = _run(script, folder, place)
        result["seconds"] = round(time.monotonic() - began)
        if logs is not None:
            logs.mkdir(parents=True, exist_ok=True)
            (logs / f"{script.name}.txt").write_text(output, encoding="utf-8")
            if (place / "report.json").is_file():
                (logs / f"{script.name}.json").write_bytes((place / "report.json").read_bytes())
        report = place / "report.json"
        if not report.is_file():
            return result | {"failure": f"No report. {output.strip().splitlines()[-1:]}"}
        return result | _facts(json.loads(report.read_text(encoding="utf-8")), folder, interrupted)


def _run(script: Script, folder: Path, place: Path) -> tuple[str, bool]:
    images = [str(HERE / "stand_ins_for_images")] if script.torchvision else []
    paths = [str(HERE / "stand_ins"), *images, str(ROOT), *(str(folder / part) for part in script.pythonpath)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([*paths, *([SITE] if SITE else [])]),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        **script.environment,
    }
    command = [sys.executable, "-m", "debugkit.cli", "run", "--format", "json", "--output", "report.json"]
    command += [str(folder / script.path), *script.arguments]
    with (place / "printed.txt").open("w") as printed:
        child = subprocess.Popen(command, cwd=place, env=environment, stdout=printed, stderr=subprocess.STDOUT)
        interrupted = not _ended(child, script.seconds)
        if interrupted:
            child.send_signal(signal.SIGINT)
            if not _ended(child, GRACE):
                child.kill()
                child.wait()
    return (place / "printed.txt").read_text(encoding="utf-8", errors="replace"), interrupted


def _ended(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait until the child has used that much more processor time; False if it still runs then."""
    process = psutil.Process(child.pid)
    until = _used(process) + seconds
    while child.poll() is None:
        if _used(process) > until:
            return False
        time.sleep(0.2)
    return True


def _used(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _facts(report: dict[str, Any], folder: Path, interrupted: bool) -> dict[str, Any]:
    failure = "Interrupted when its time was over." if interrupted else report.get("failure") or ""
    steps = int(report["title"].rpartition(", ")[2].split()[0].replace(",", ""))
    return {
        "failure": failure or ("" if steps else "It ended without a step of an optimizer."),
        "steps": steps,
        "findings": [_finding(finding, folder) for finding in report["findings"]],
        "not_examined": [entry["code"] for entry in report["not_examined"]],
    }


def _finding(finding: dict[str, Any], folder: Path) -> dict[str, Any]:
    kept = {name: finding[name] for name in ("code", "severity", "message", "evidence") if name in finding}
    return kept | {"place": _place(finding.get("location") or {}, folder)}


def _place(location: dict[str, Any], folder: Path) -> str:
    if location.get("file"):
        path = Path(location["file"])
        shown = path.relative_to(folder) if path.is_relative_to(folder) else path.name
        return f"{shown}:{location['line']}"
    return str(location.get("parameter") or location.get("module") or location.get("input") or "")


if __name__ == "__main__":
    sys.exit(main())
