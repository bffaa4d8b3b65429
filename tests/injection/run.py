"""Compose programs from seeds, examine them, plant faults into them, examine them again, and write down what was said.

    python tests/injection/run.py --seeds 1000-1140 --jobs 2      # the measurement of docs/debugkit/injection.md
    python tests/injection/run.py --seeds 0-60 --out tried.jsonl  # while programs or operators are being written
    python tests/injection/run.py --record                        # make record.json from what was written down

Not collected by pytest. Each seed runs in a child process with a limit of processor time and adds one line to a file;
seeds that the file holds already are left out, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import logging
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

import torch  # noqa: E402
import transformers  # noqa: E402

from debugkit.finding import Finding  # noqa: E402
from injection.architectures import Composed, compose, kinds  # noqa: E402
from injection.examine import behaviour, differences, examine, load, loud, on_another_device  # noqa: E402
from injection.operators import FAMILIES, Operator, operators  # noqa: E402

OUT, RECORD = HERE / "run.jsonl", HERE / "record.json"
CPU_S = 120
"""Processor time of one seed."""
PLANTED = 4
"""Faults for each program, each in a run of its own."""

Entry = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure debugkit on composed programs with and without faults.")
    parser.add_argument("--seeds", default="1000-1140", help="the first and the last seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--out", type=Path, default=OUT, help="the file with a line for each seed")
    parser.add_argument("--cpu", type=float, default=900.0, help="stop when this much processor time is used")
    parser.add_argument("--record", action="store_true", help="run nothing; write record.json from the file")
    options = parser.parse_args(arguments)
    if options.record:
        write_record(options.out)
        return 0
    first, last = (int(part) for part in options.seeds.split("-"))
    done = {entry["seed"] for entry in read(options.out)}
    _import_all()
    running: dict[int, Any] = {}
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    before = used.ru_utime + used.ru_stime
    for seed in range(first, last + 1):
        if seed in done:
            continue
        while len(running) >= options.jobs:
            _reap(running, options.out)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        if used.ru_utime + used.ru_stime - before > options.cpu:
            break
        child = multiprocessing.get_context("fork").Process(target=_child, args=(seed, options.out))
        child.start()
        running[seed] = child
    while running:
        _reap(running, options.out)
    return 0


def read(path: Path) -> Iterator[Entry]:
    """What was written down, a seed at a time."""
    if path.is_file():
        yield from (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def write_record(path: Path) -> None:
    """The record that the page is made from."""
    record = {
        "date": f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": sys.version.split()[0],
        "kinds": list(kinds()),
        "families": FAMILIES,
        "operators": {
            name: {"family": one.family, "codes": list(one.codes), "what": one.what}
            for name, one in operators().items()
        },
        "seeds": sorted(read(path), key=lambda entry: entry["seed"]),
    }
    RECORD.write_text(json.dumps(record, indent=0) + "\n", encoding="utf-8")


def one(seed: int, folder: Path) -> Entry:
    """A healthy program, and the faults that the seed plants into it."""
    began = time.process_time()
    program = compose(seed)
    path = folder / f"program_{seed}.py"
    healthy = behaviour(program.text, path)
    said = examine(program.text, path)
    entry: Entry = {
        "seed": seed,
        "kind": program.kind,
        "task": program.task,
        "fails": healthy.get("raised") or said.build_failure or said.check_failure or said.watch_failure,
        "losses": [round(value, 4) for value in healthy.get("losses", [])[:40]],
        "alarms": [_finding(finding, path) for finding in loud(said)],
        "seconds": round(time.process_time() - began, 2),
    }
    entry["faults"] = [fault(program, each, healthy, entry["alarms"], folder) for each in drawn(program)]
    entry["all_seconds"] = round(time.process_time() - began, 2)
    return entry


def drawn(program: Composed) -> list[Operator]:
    """Operators that apply, of different families where possible, by the seed."""
    chance = random.Random(f"faults {program.seed}")
    by_family: dict[str, list[Operator]] = {family: [] for family in FAMILIES}
    for operator in operators().values():
        if operator.plant(program, random.Random(f"{program.seed} {operator.name}")) is not None:
            by_family[operator.family].append(operator)
    families = [family for family in FAMILIES if by_family[family]]
    return [chance.choice(by_family[family]) for family in chance.sample(families, min(PLANTED, len(families)))]


def fault(program: Composed, operator: Operator, healthy: Entry, alarms: list[Entry], folder: Path) -> Entry:
    """One fault: whether it has an effect, and what was said of it."""
    began = time.process_time()
    text = operator.plant(program, random.Random(f"{program.seed} {operator.name}"))
    assert text is not None
    path = folder / f"program_{program.seed}.py"
    entry: Entry = {"operator": operator.name, "family": operator.family}
    planted = behaviour(text, path)
    effect = differences(healthy, planted)
    if operator.where == "repeat":
        effect = differences(planted, behaviour(text, path)) and not differences(healthy, behaviour(program.text, path))
    if operator.where == "device":
        raised = "" if on_another_device(program.text, path) else on_another_device(text, path)
        effect = ["another device"] if raised else []
    entry["effect"] = effect if isinstance(effect, list) else ["repeat"] * effect
    entry["raises"] = planted.get("raised", "")
    if not entry["effect"]:
        return entry | {"result": "no effect", "seconds": round(time.process_time() - began, 2)}
    said = examine(text, path)
    known = {(alarm["code"], alarm["parameter"], alarm["module"]) for alarm in alarms}
    new = [f for f in loud(said) if (f.code, f.location.parameter, f.location.module) not in known]
    exact = [finding for finding in new if finding.code in operator.codes]
    named_at_info = any(finding.code in operator.codes for finding in said.findings)
    shown = exact or new
    return entry | {
        "result": "exact" if exact else "otherwise" if new else "missed",
        "placed": any(operator.is_placed(finding, program.text, text, str(path)) for finding in shown),
        "info": named_at_info and not exact,
        "build_failure": said.build_failure[:200],
        "findings": [_finding(finding, path) for finding in new],
        "seconds": round(time.process_time() - began, 2),
    }


def _finding(finding: Finding, path: Path) -> Entry:
    at = finding.location
    own = at.file is not None and Path(at.file) == path
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "message": finding.message.replace(str(path.parent) + "/", "")[:400],
        "module": at.module,
        "parameter": at.parameter,
        "line": at.line if own else None,
        "caused_by": finding.caused_by,
    }


def _child(seed: int, out: Path) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 5))
    torch.set_num_threads(1)
    gc.freeze()  # what is imported is not searched for tensors
    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory() as folder:
            entry = one(seed, Path(folder))
    except BaseException:
        entry = {"seed": seed, "kind": compose(seed).kind, "crash": traceback.format_exc(limit=-4)[-1500:]}
    _append(out, entry)


def _append(out: Path, entry: Entry) -> None:
    line = (json.dumps(entry) + "\n").encode()
    handle = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, line)
    os.close(handle)


def _reap(running: dict[int, Any], out: Path) -> None:
    """Take the children that have ended off the list; one that was killed leaves a line, too."""
    for seed, child in list(running.items()):
        if not child.is_alive():
            child.join()
            if child.exitcode:
                why = f"The child ended with {child.exitcode}; its limit is {CPU_S} s of processor time."
                _append(out, {"seed": seed, "kind": compose(seed).kind, "crash": why})
            del running[seed]
    time.sleep(0.05)


def _import_all() -> None:
    """Import what the programs import once, in the parent, and not in every child."""
    torch.set_num_threads(1)
    first = len(kinds())
    for seed in range(first):
        for line in compose(seed).text.splitlines():
            if line.startswith("from transformers import"):
                exec(line, {})
    load("import torch\n", Path(tempfile.mkdtemp()) / "warm.py")


if __name__ == "__main__":
    sys.exit(main())
