"""Time and memory of `lab class grade` for 200 learners and three labs, killed and resumed on the way.

    python tests/benchmarks/class_of_200.py [--learners 200] [--jobs 2] [NN ...]

Each learner submits one file per lab, drawn from the lab's starter, solution, alternatives and wrong fixes, with a
comment of their own. The run is killed when a third of the results is written, and started again. Every verdict is
compared with what the file is. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from labs.authoring.variants import alternatives, base_files, wrong_fixes
from labs.grading.catalog import Lab, find

KILLED_AFTER = 1 / 3


def files_by_verdict(lab: Lab) -> dict[str, list[dict[str, str]]]:
    """What a learner may submit: files that pass and files that fail."""
    passed = [base_files(lab, "solution"), *(one.files(lab) for one in alternatives(lab))]
    failed = [base_files(lab, "starter"), *(one.files(lab) for one in wrong_fixes(lab))]
    return {"passed": passed, "failed": failed}


def write_class(folder: Path, labs: list[Lab], learners: int) -> dict[tuple[str, str], str]:
    """Write the submissions; the expected verdict of each learner and lab."""
    drawn = random.Random(0)
    expected = {}
    for lab in labs:
        choices = files_by_verdict(lab)
        for index in range(learners):
            student, verdict = f"learner{index:03d}", drawn.choice(["passed", "failed"])
            for name, text in drawn.choice(choices[verdict]).items():
                path = folder / student / lab.name / name
                path.parent.mkdir(parents=True, exist_ok=True)
                comment = f"# {student}\n" if path.suffix in (".py", ".yaml") else ""
                path.write_text(text + comment, encoding="utf-8")
            expected[student, lab.id] = verdict
    return expected


class PeakMemory:
    """The largest memory of a process and all its children together, sampled twice a second."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.samples: list[int] = []
        self._process = psutil.Process(process.pid)
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE:
            total = 0
            for one in [self._process, *self._process.children(recursive=True)]:
                try:
                    total += one.memory_full_info().pss
                except psutil.Error:
                    continue
            self.samples.append(total)
            time.sleep(0.5)


def cpu_of_children() -> float:
    """CPU seconds of the processes that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Write a class, grade it with a kill on the way, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("labs", nargs="*", default=["03", "11", "41"])
    parser.add_argument("--learners", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    labs = [find(number) for number in asked.labs]
    with tempfile.TemporaryDirectory() as root:
        submissions, out = Path(root) / "submissions", Path(root) / "out"
        expected = write_class(submissions, labs, asked.learners)
        command = [sys.executable, "-m", "labs.cli", "class", "grade", str(submissions), *asked.labs]
        command += ["--jobs", str(asked.jobs), "--out", str(out)]
        began = time.monotonic()
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        before = PeakMemory(first)
        lines = out / "results.jsonl"
        while first.poll() is None and (
            not lines.exists() or lines.read_bytes().count(b"\n") < KILLED_AFTER * len(expected)
        ):
            time.sleep(0.2)
        started = psutil.Process(first.pid).children(recursive=True)
        first.send_signal(signal.SIGKILL)
        first.wait()
        _, left = psutil.wait_procs(started, timeout=60)
        for one in left:
            one.kill()
        kept = lines.read_bytes().count(b"\n")
        cpu_before = cpu_of_children()
        second = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        after = PeakMemory(second)
        code = second.wait()
        seconds = time.monotonic() - began
        cpu = cpu_of_children() - cpu_before
        results = json.loads((out / "results.json").read_text())["results"]
        written = len(lines.read_bytes().splitlines())
    other = [one for one in results if one["verdict"] != expected[one["student"], one["lab"]]]
    third = len(after.samples) // 3
    measured = {
        "submissions": len(expected),
        "labs": asked.labs,
        "jobs": asked.jobs,
        "exit_code": code,
        "minutes": round(seconds / 60, 1),
        "seconds_per_submission": round(seconds / len(expected), 2),
        "cpu_seconds_per_submission": round(cpu / (len(expected) - kept), 2),
        "kept_over_the_kill": kept,
        "processes_left_by_the_kill": len(left),
        "graded": len(results),
        "written_more_than_once": written - len(expected),
        "wrong_verdicts": [(one["student"], one["lab"], one["verdict"]) for one in other],
        "peak_mib": max(before.samples + after.samples) >> 20,
        "median_mib_by_third": [
            sorted(part)[len(part) // 2] >> 20
            for part in (after.samples[:third], after.samples[third : 2 * third], after.samples[2 * third :])
            if part
        ],
    }
    sys.stdout.write(json.dumps(measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
