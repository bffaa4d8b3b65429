"""Seconds from a save to the first check line and to the whole verdict of `lab watch`, for several labs.

    python tests/benchmarks/watch_latency.py [--saves 6] [NN ...]

`lab watch NN` runs in a terminal of its own. Each save writes the starter or the solution in turn, so that every
verdict differs from the one before. The first verdict includes the imports and is left out. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from labs.authoring.variants import base_files
from labs.grading.catalog import all_labs, find

WITH_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
ESCAPES = re.compile(r"\x1b\[[0-?]*[@-~]")
WAITING = "waiting for you to save"
FIRST_LINE = re.compile(r"^\s+[✓✗·] \S", re.MULTILINE)
HANG_S = 180


class Screen:
    """What `lab watch` prints, from the moment that the last save ended."""

    def __init__(self, primary: int) -> None:
        self._primary = primary

    def times(self) -> tuple[float | None, float]:
        """Seconds until the first line of a check, if there is one, and until the command waits for the next save."""
        began, raw, first = time.monotonic(), "", None
        while True:
            if time.monotonic() - began > HANG_S:
                raise TimeoutError(f"lab watch printed no verdict in {HANG_S} s: {raw[-500:]}")
            if not select.select([self._primary], [], [], 0.05)[0]:
                continue
            raw += os.read(self._primary, 65536).decode(errors="replace")
            seen = ESCAPES.sub("", raw)
            if first is None and FIRST_LINE.search(seen):
                first = time.monotonic() - began
            if WAITING in seen:
                return first, time.monotonic() - began


def measure(number: str, saves: int, workspace: Path) -> list[dict[str, object]]:
    """One entry per save of lab `number`."""
    lab = find(number)
    lab_command = [sys.executable, "-m", "labs.cli"]
    subprocess.run([*lab_command, "start", number], cwd=workspace, check=True, stdout=subprocess.DEVNULL)
    attempt = next(path for path in workspace.glob(f"lab{number}*/{lab.editable[0]}"))
    primary, secondary = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_THE_TERMINAL, *lab_command, "watch", number],
        cwd=workspace,
        stdin=secondary,
        stdout=secondary,
        stderr=secondary,
        start_new_session=True,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "150"},
    )
    try:
        screen = Screen(primary)
        screen.times()
        found = []
        for save in range(saves):
            origin = "solution" if save % 2 == 0 else "starter"
            attempt.write_text(base_files(lab, origin)[lab.editable[0]], encoding="utf-8")
            first, whole = screen.times()
            found.append({"lab": number, "file": origin, "first_line_s": first, "verdict_s": whole})
            time.sleep(0.5)
        return found
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        os.close(primary)
        os.close(secondary)


def main() -> None:
    """Measure each lab in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("labs", nargs="*", help="default: every lab with one editable file")
    parser.add_argument("--saves", type=int, default=6)
    asked = parser.parse_args()
    numbers = asked.labs or [lab.id for lab in all_labs() if len(lab.editable) == 1]
    entries = []
    with tempfile.TemporaryDirectory() as root:
        workspace = Path(root) / "workspace"
        subprocess.run(
            [sys.executable, "-m", "labs.cli", "init", str(workspace)], check=True, stdout=subprocess.DEVNULL
        )
        for number in numbers:
            entries += measure(number, asked.saves, workspace)
            sys.stderr.write(f"{entries[-1]}\n")
    firsts = [one["first_line_s"] for one in entries if one["first_line_s"] is not None]
    passed = [one["verdict_s"] for one in entries if one["file"] == "solution"]
    document = {
        "labs": numbers,
        "saves": len(entries),
        "median_first_line_s": round(statistics.median(firsts), 2),
        "largest_first_line_s": round(max(firsts), 2),
        "median_verdict_s": round(statistics.median(one["verdict_s"] for one in entries), 2),
        "median_verdict_of_a_pass_s": round(statistics.median(passed), 2),
        "largest_verdict_s": round(max(one["verdict_s"] for one in entries), 2),
        "entries": entries,
    }
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
