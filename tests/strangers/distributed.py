"""The programs of `on_two_ranks/`: each is started twice by torchrun, with `debugkit run` in place of `python`.

    python tests/strangers/distributed.py                      # examine all programs, and record the verdicts
    python tests/strangers/distributed.py cnn_ddp ppo_ddp      # only these
    python tests/strangers/distributed.py cnn_ddp/same_data    # one fault: show what decided, and record nothing

The format of a program is that of `corpus.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from child_processes import run
from debugkit.report import Report
from strangers.corpus import Fault, Stranger, Verdict, assess, strangers

RESULTS = Path(__file__).with_name("results_on_two_ranks.toml")
_HEAD = """# For each program, `correct` and each fault: the verdict of the first attempt, and the present one.
# The first attempt on faults was made after the wrapper of a running call was recognised, and DK806 added.
"""


def programs() -> dict[str, Stranger]:
    """All programs by name."""
    return strangers("on_two_ranks")


def results() -> dict[str, dict[str, list[Verdict]]]:
    """For each program, `correct` and the faults: the verdict of the first attempt, and the present one."""
    return tomllib.loads(RESULTS.read_text(encoding="utf-8"))


def summary() -> str:
    """Both attempts in a few sentences, for the page of figures."""
    recorded = results()
    faults = [(stranger.name, fault) for stranger in programs().values() for fault in stranger.faults]
    told = [(name, fault.name) for name, fault in faults if fault.codes]
    now = [recorded[name][fault][1] for name, fault in told]
    named = sum(one in ("placed", "code") for one in now)
    alarms, alarms_now = (sum(each["correct"][attempt] == "alarm" for each in recorded.values()) for attempt in (0, 1))
    return (
        f"{len(recorded)} more scripts, in `tests/strangers/on_two_ranks`, train on two ranks under torchrun: with "
        "DistributedDataParallel, with accelerate, Lightning and the Trainer of transformers, and with gradients that "
        f"are averaged by hand. At first, {alarms} of them raised a false alarm: DK803 took a wrapper for bypassed "
        f"whose first call had begun before `debugkit run` found it. After that was corrected, it is {alarms_now}. Of "
        f"their {len(faults)} faults, {len(told)} have a rule: {named} of these are named, "
        f"and {now.count('placed')} at their place. Codes and places were written down before the faults "
        "were examined, but for seven that had been seen; four places were corrected to those that the rules name. "
        "DK806 was written after one of those had been missed."
    )


def verdict_on_two_ranks(stranger: Stranger, fault: Fault | None, folder: Path) -> tuple[Verdict, list[str]]:
    """Run a program with a fault, or without one, on two ranks. The findings of both decide."""
    file = folder / f"{stranger.name}.py"
    file.write_text(stranger.source(fault.name if fault else None)[0], encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    debugkit = Path(sys.executable).with_name("debugkit")
    examine = [debugkit, "run", "--format", "json", "--output", folder / "report.json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = run([*launch, *examine, file], cwd=folder, env=environment, stderr=subprocess.STDOUT)
    reports = [Report.from_json(path) for path in sorted(folder.glob("report*.json"))]
    assert len(reports) == 2, done.stdout
    assert not any(report.failure for report in reports), done.stdout
    return assess([finding for report in reports for finding in report.findings], stranger, fault)


def _record(names: Sequence[str]) -> None:
    recorded = results() if RESULTS.exists() else {}
    for stranger in programs().values():
        if names and stranger.name not in names:
            continue
        verdicts = {}
        for fault in (None, *stranger.faults):
            name = fault.name if fault else "correct"
            with tempfile.TemporaryDirectory() as folder:
                now, said = verdict_on_two_ranks(stranger, fault, Path(folder))
            verdicts[name] = [recorded.get(stranger.name, {}).get(name, [now])[0], now]
            _write(f"{stranger.name}/{name}: {now}", *said)
        recorded[stranger.name] = verdicts
        RESULTS.write_text(_HEAD + "".join(_table(*one) for one in sorted(recorded.items())), encoding="utf-8")


def _table(name: str, verdicts: dict[str, list[Verdict]]) -> str:
    rows = (f'{fault} = ["{first}", "{now}"]\n' for fault, (first, now) in verdicts.items())
    return f"\n[{name}]\n" + "".join(rows)


def _show(name: str, fault: str) -> None:
    stranger = programs()[name]
    found = next((one for one in stranger.faults if one.name == fault), None)
    with tempfile.TemporaryDirectory() as folder:
        now, said = verdict_on_two_ranks(stranger, found, Path(folder))
    _write(now, *said)


def _write(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if len(sys.argv) == 2 and "/" in sys.argv[1]:
        _show(*sys.argv[1].split("/"))
    else:
        _record(sys.argv[1:])
