"""The page about training scripts of public repositories, from a run's record and the readings of its findings."""

from __future__ import annotations

import importlib.util
import json
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import _tables

from debugkit.rule import all_rules

ROOT = _tables.DOCS.parent
FOLDER = ROOT / "tests" / "third_party"
Entry = dict[str, Any]
Read = tuple[str, Entry, Entry]
"""A script's name, a finding, and its reading."""
KINDS = {"true": "right", "false": "wrong", "arguable": "arguable"}


class ReadingError(ValueError):
    """A finding has no reading, a reading belongs to no finding, or its kind is unknown; the message lists them."""


def page() -> str:
    """The page's text. Raises ReadingError."""
    record = json.loads((FOLDER / "record.json").read_text(encoding="utf-8"))
    readings = tomllib.loads((FOLDER / "readings.toml").read_text(encoding="utf-8"))
    read = matched(record, readings.get("readings", []))
    ran = [script for script in record["scripts"] if script["steps"]]
    loud = [(finding, reading) for _, finding, reading in read if finding["severity"] != "info"]
    lines = [
        "# On training scripts of public repositories",
        "",
        f"**{len(ran)} of {len(record['scripts'])}** training scripts of public repositories were examined by "
        f"`debugkit run`, unmodified. {_counted(loud)} {_before(readings.get('earlier', []))}",
        "",
        "The authors of debugkit read each finding against the source of its script and called it right, wrong or",
        "arguable; nobody else has judged these readings. The first paragraph counts errors and warnings, the table",
        "below lists infos too. The rules were changed after earlier runs, as shown below.",
        "",
        f"Measured on {record['date']} with torch {record['torch']} by `python tests/third_party/run.py`. The scripts",
        "are not part of this repository. `python tests/third_party/fetch.py FOLDER` downloads them at the commit or",
        "version that `tests/third_party/manifest.toml` names, and refuses a file with another SHA-256. For single",
        "files of GitHub these sums are those of the copies that were examined, which came from an archive of public",
        "repositories and were compared with the originals by length; `fetch.py` has not been run against the network",
        "yet. A commit may be one of a fork of the repository.",
        "",
        "Data are synthetic and small, and stand-ins of this repository replace torchvision, gym, datasets, evaluate,",
        "stable-baselines3 and TensorBoard. Scripts without an end are stopped after seconds of processor time, so",
        "that the rules that judge the end of a run do not examine it.",
        *([record["note"]] if record.get("note") else []),
        "",
        "## Findings",
        "",
        *_findings(read),
        *_earlier(readings.get("earlier", [])),
        *_missed(readings.get("missed", [])),
        "## Scripts",
        "",
        "| script | from | data | steps | findings | rules not examined |",
        "|---|---|---|---|---|---|",
        *(_row(script, record["scripts"]) for script in _scripts()),
        "",
        *_stopped(record["scripts"]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def matched(record: Entry, readings: Sequence[Entry]) -> list[Read]:
    """Each finding of the record with its reading. Raises ReadingError."""
    left = {(reading["script"], reading["code"], reading["place"]): reading for reading in readings}
    unknown = [reading for reading in readings if reading["kind"] not in KINDS]
    problems = [f"{reading['script']}: {reading['kind']} is no kind" for reading in unknown]
    found = []
    for script in record["scripts"]:
        for finding in script["findings"]:
            reading = left.pop((script["name"], finding["code"], finding["place"]), None)
            if reading is None:
                problems.append(f"{script['name']}: {finding['code']} at {finding['place']!r} has no reading")
            else:
                found.append((script["name"], finding, reading))
    problems += [f"{name}: the reading of {code} at {place!r} belongs to no finding" for name, code, place in left]
    if problems:
        raise ReadingError("tests/third_party/readings.toml: " + "; ".join(problems))
    return found


def _counted(loud: Sequence[tuple[Entry, Entry]]) -> str:
    counts = {kind: sum(reading["kind"] == kind for _, reading in loud) for kind in KINDS}
    parts = ", ".join(f"{counts[kind]} {word}" for kind, word in KINDS.items())
    return f"Errors and warnings: **{len(loud)}**, of which {parts}."


def _before(earlier: Sequence[Entry]) -> str:
    scripts = {one["script"] for one in earlier}
    return f"In earlier runs, {len(earlier)} more on {len(scripts)} scripts were wrong." if earlier else ""


def _findings(read: Sequence[Read]) -> Iterator[str]:
    if not read:
        yield from ("None.", "")
        return
    yield from ("| script | rule | severity | place | reading | why |", "|---|---|---|---|---|---|")
    for name, finding, reading in read:
        code = finding["code"]
        place = f"`{finding['place']}`" if finding["place"] else "–"
        yield (
            f"| `{name}` | [{code}]({_rule(code)}) | {finding['severity']} | {place} | {KINDS[reading['kind']]} "
            f"| {_cell(reading['why'])} |"
        )
    yield ""
    upstream = [(name, reading["upstream"]) for name, _, reading in read if reading.get("upstream")]
    if upstream:
        yield from ("In words for the project:", "")
        yield from (f"- `{name}`: {' '.join(text.split())}" for name, text in dict.fromkeys(upstream))
        yield ""


def _earlier(earlier: Sequence[Entry]) -> Iterator[str]:
    """The false alarms of earlier runs that the rules no longer raise."""
    if not earlier:
        return
    yield from ("## False alarms of earlier runs", "")
    yield f"These {len(earlier)} errors and warnings were wrong. The rules were then changed; for each change there is"
    yield from ("a correct program in `tests/healthy` or `tests/rules` that raised the same alarm before it.", "")
    yield from ("| script | rule | what it said | what was changed |", "|---|---|---|---|")
    for one in earlier:
        rule = f"[{one['code']}]({_rule(one['code'])})"
        yield f"| `{one['script']}` | {rule} | {_cell(one['said'])} | {_cell(one['changed'])} |"
    yield ""


def _missed(missed: Sequence[Entry]) -> Iterator[str]:
    if not missed:
        return
    yield from ("## Faults that no finding names", "", "Seen while the scripts were read; not a systematic search.", "")
    yield from (f"- `{one['script']}`: {' '.join(one['what'].split())}" for one in missed)
    yield ""


def _row(script: Any, results: Sequence[Entry]) -> str:
    result = next((one for one in results if one["name"] == script.name), None)
    source = f"[{script.repository}](https://github.com/{script.repository}) `{script.version[:10]}`, `{script.file}`"
    if result is None:
        return f"| `{script.name}` | {source} | {script.data or '–'} | not run | – | – |"
    codes = ", ".join(dict.fromkeys(finding["code"] for finding in result["findings"])) or "–"
    data = script.data or "–"
    return f"| `{script.name}` | {source} | {data} | {result['steps']} | {codes} | {len(result['not_examined'])} |"


def _stopped(results: Sequence[Entry]) -> Iterator[str]:
    interrupted = [result["name"] for result in results if result["failure"].startswith("Interrupted")]
    if interrupted:
        yield from (f"Interrupted when their time was over: {', '.join(f'`{name}`' for name in interrupted)}.", "")
    others = [result for result in results if result["failure"] and result["name"] not in interrupted]
    if others:
        yield from ("These ended otherwise:", "")
        yield from (f"- `{result['name']}`: {_cell(result['failure'])}" for result in others)


def _scripts() -> Sequence[Any]:
    return tuple(_loaded("manifest", FOLDER / "manifest.py").scripts())


def _loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"third_party_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _rule(code: str) -> str:
    rule = next(rule for rule in all_rules() if rule.code == code)
    return _tables.rule_page(rule).removeprefix("debugkit/")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")
