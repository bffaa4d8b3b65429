"""Write what the wrong program of each rule prints: `rule_examples/dkNNN/finding.txt`.

python docs/_rule_examples.py            # every rule; about two minutes
python docs/_rule_examples.py DK305      # only these
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent / "rule_examples"
COLUMNS = "88"
"""The width of a page."""


def printed_by(program: str, name: str, folder: Path) -> str:
    """What a program prints when it is run as `python NAME` in an empty folder, without trailing spaces."""
    (folder / name).write_text(program, encoding="utf-8")
    environment = {**os.environ, "COLUMNS": COLUMNS, "PYTHONPATH": str(EXAMPLES.parents[1])}
    run = subprocess.run(
        [sys.executable, name], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return "\n".join(line.rstrip() for line in run.stdout.splitlines()).strip("\n") + "\n"


def main(codes: list[str]) -> int:
    """Write the findings of these rules, of all by default."""
    for folder in sorted(EXAMPLES.glob("dk[0-9][0-9][0-9]")):
        if not codes or folder.name.upper() in codes:
            with tempfile.TemporaryDirectory() as empty:
                text = printed_by((folder / "wrong.py").read_text(encoding="utf-8"), "wrong.py", Path(empty))
            (folder / "finding.txt").write_text(text, encoding="utf-8")
            sys.stdout.write(f"written: {folder.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main([code.upper() for code in sys.argv[1:]]))
