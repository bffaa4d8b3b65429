"""Measures what the generator makes, over many seeds: `lab dev mystery`.

For each seed: is there a fair draw, do the checks refuse it as planted, do they accept it with the fault undone, and is
the text what ruff would write. The result is `measured.json`, which the page docs/reference/mystery.md shows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from labs.learner.atomic_file import write_atomically
from labs.mystery.aspects import ASPECTS
from labs.mystery.compose import DIMENSIONS
from labs.mystery.healthy import Running
from labs.mystery.operators import OPERATORS
from labs.mystery.plant import Key, NoMysteryError, Planted, failing, plant

RECORD = Path(__file__).with_name("measured.json")
RULES = "E,F,W,I,B,UP,C4,SIM,RUF,PIE,RET,N,T20,PTH"
"""What `ruff check` must find nothing of, in the healthy files and in the planted ones."""
_IGNORED = "RUF001,RUF002,RUF003,RET504,N812"
_FIRST_SEED = 1


def key_of(seed: int) -> Key:
    """The key that a seed of the measurement stands for: the levels in turn."""
    return Key(seed, level=seed % 3 + 1)


def measure(seeds: int, scratch: Path) -> Iterator[dict[str, Any]]:
    """The result of each seed from 1 on. Those in the folder `scratch` are not measured again."""
    scratch.mkdir(parents=True, exist_ok=True)
    for seed in range(_FIRST_SEED, _FIRST_SEED + seeds):
        path = scratch / f"{seed}.json"
        if not path.is_file():
            write_atomically(path, json.dumps(measure_seed(key_of(seed))).encode())
        yield json.loads(path.read_text(encoding="utf-8"))


def measure_seed(key: Key) -> dict[str, Any]:
    """One seed: what was planted, how long the generator took, and what does not hold."""
    began = time.process_time()
    try:
        planted = plant(key)
    except NoMysteryError as error:
        return {"seed": key.seed, "level": key.actual_level, "problems": [str(error)], "operators": []}
    seconds = time.process_time() - began
    refused, not_accepted = verdicts(planted)
    found = [] if refused else ["passes as planted"]
    found += [f"is refused without the fault: {', '.join(not_accepted)}"] if not_accepted else []
    found += style_problems(planted)
    return {
        "seed": key.seed,
        "level": key.actual_level,
        "operators": [one.id for one in planted.operators],
        "forms": dict(planted.program.forms),
        "draws": planted.attempt + 1,
        "seconds": round(seconds, 2),
        "refused by": sorted(refused),
        "problems": found,
    }


def verdicts(planted: Planted) -> tuple[dict[str, str], dict[str, str]]:
    """What the checks refuse of the planted program, and of the one without the fault, on inputs not used before."""
    healthy, stream = Running(planted.program), f"{planted.key.name} verdict"
    refused = failing(healthy, Running(planted.program, planted.files), ASPECTS, stream, 1.0)
    return refused, failing(healthy, Running(planted.program), ASPECTS, stream, 1.0)


def style_problems(planted: Planted) -> list[str]:
    """What ruff says about the files; empty where ruff is not installed."""
    if find_spec("ruff") is None:
        return []
    ruff = (sys.executable, "-m", "ruff")  # the one of this environment, whether or not its scripts are on the path
    with tempfile.TemporaryDirectory() as folder:
        for name, text in planted.files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
            (Path(folder) / f"healthy_{name}").write_text(planted.program.files[name], encoding="utf-8")
        common = ["--isolated", "--quiet", "--line-length", "120", "--no-cache"]
        check = [*ruff, "check", *common, "--select", RULES, "--ignore", _IGNORED, "."]
        commands = ([*ruff, "format", "--check", *common, "."], check)
        done = [subprocess.run(one, cwd=folder, capture_output=True, text=True, check=False) for one in commands]
    return [f"ruff {one.args[len(ruff)]}: {one.stdout.strip()[:300]}" for one in done if one.returncode != 0]


def record_of(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the page shows of the results."""
    counts = Counter(one for result in results for one in result["operators"])
    forms = {name: Counter(result["forms"][name] for result in results if "forms" in result) for name in DIMENSIONS}
    seconds = sorted(result["seconds"] for result in results if "seconds" in result)
    words = [problem for result in results for problem in result["problems"]]
    return {
        "seeds": len(results),
        "without a draw": sum(not result["operators"] for result in results),
        "passing as planted": sum("passes as planted" in one for one in words),
        "refused without the fault": sum("is refused without the fault" in one for one in words),
        "not in ruff's style": sum(one.startswith("ruff") for one in words),
        "median seconds": seconds[len(seconds) // 2] if seconds else 0.0,
        "largest seconds": seconds[-1] if seconds else 0.0,
        "most draws": max((result.get("draws", 0) for result in results), default=0),
        "levels": dict(sorted(Counter(str(result["level"]) for result in results).items())),
        "operators": {one.id: counts[one.id] for one in OPERATORS},
        "forms": {name: {form: forms[name][form] for form in options} for name, options in DIMENSIONS.items()},
    }


def write_record(record: Mapping[str, Any]) -> None:
    """Write `measured.json`."""
    write_atomically(RECORD, (json.dumps(record, indent=2) + "\n").encode())
