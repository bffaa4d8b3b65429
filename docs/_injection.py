"""The page about faults planted into composed programs, from the record of a run and from the readings of its alarms."""

from __future__ import annotations

import json
import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import _tables

from debugkit.rule import all_rules

FOLDER = _tables.DOCS.parent / "tests" / "injection"
Entry = dict[str, Any]
KINDS = {"true": "right", "false": "wrong", "arguable": "arguable"}


class ReadingError(ValueError):
    """An alarm has no reading, a reading belongs to no alarm, or its kind is unknown; the message lists them."""


def page() -> str:
    """The page's text. Raises ReadingError."""
    record = json.loads((FOLDER / "record.json").read_text(encoding="utf-8"))
    readings = tomllib.loads((FOLDER / "readings.toml").read_text(encoding="utf-8"))
    return text(record, readings)


def text(record: Entry, readings: Entry) -> str:
    """The page of a record and its readings. Raises ReadingError."""
    ran = [seed for seed in record["seeds"] if "crash" not in seed]
    alarms = read_alarms(ran, readings.get("readings", []))
    faults = [(seed, fault) for seed in ran for fault in seed["faults"]]
    counted = [fault for _, fault in faults if fault["result"] != "no effect"]
    lines = [
        "# On faults planted at random",
        "",
        *_summary(ran, alarms, counted),
        "",
        *_method(record, ran, faults, counted, readings.get("note", "")),
        "## By family",
        "",
        *_families(record, counted),
        "",
        "Shares have 95 % Wilson intervals. They treat the faults as independent draws, though faults of one kind and",
        "programs of one architecture resemble each other, so the true uncertainty is larger.",
        "",
        "## Alarms without a planted fault",
        "",
        *_alarms(alarms),
        "## Kinds that were missed",
        "",
        *_missed(record, counted),
        *_invalid(readings.get("invalid", []), faults),
        *(f"- {_cell(remark)}" for remark in readings.get("remarks", [])),
        "",
        "## All kinds of faults",
        "",
        *_operators(record, counted),
        "",
        "## Architectures",
        "",
        *_architectures(record, ran),
    ]
    return "\n".join(lines).rstrip() + "\n"


def interval(found: int, total: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a share."""
    if not total:
        return 0.0, 1.0
    z, share = 1.959964, found / total
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, middle - half), min(1.0, middle + half)


def read_alarms(ran: Sequence[Entry], readings: Sequence[Entry]) -> list[tuple[Entry, Entry, Entry]]:
    """Each alarm on a healthy program with its program and its reading. Raises ReadingError."""
    left = {(reading["seed"], reading["code"]): reading for reading in readings}
    problems = [f"seed {one['seed']}: {one['kind']} is no kind" for one in readings if one["kind"] not in KINDS]
    used, found = set(), []
    for seed in ran:
        for alarm in seed["alarms"]:
            key = (seed["seed"], alarm["code"])
            if key in left:
                used.add(key)
                found.append((seed, alarm, left[key]))
            else:
                problems.append(f"seed {seed['seed']}: {alarm['code']} has no reading")
    problems += [f"seed {number}: the reading of {code} belongs to no alarm" for number, code in left.keys() - used]
    if problems:
        raise ReadingError("tests/injection/readings.toml: " + "; ".join(dict.fromkeys(problems)))
    return found


def _summary(ran: Sequence[Entry], alarms: Sequence[tuple[Entry, Entry, Entry]], counted: Sequence[Entry]) -> list[str]:
    alarmed = len({seed["seed"] for seed, _, _ in alarms})
    wrong = len({seed["seed"] for seed, _, reading in alarms if reading["kind"] == "false"})
    exact = sum(fault["result"] == "exact" for fault in counted)
    found = exact + sum(fault["result"] == "otherwise" for fault in counted)
    placed = sum(bool(fault["placed"]) for fault in counted if fault["result"] == "exact")
    return [
        f"**{alarmed} of {len(ran)}** composed programs without a planted fault raise an `error` or a `warning` "
        f"({_percent(alarmed, len(ran))}). Read by hand, {wrong} of {len(ran)} have an alarm that is wrong ({_percent(wrong, len(ran))}).",
        f"Of **{len(counted)}** planted faults, **{exact}** are named by a rule for them "
        f"({_percent(exact, len(counted))}), and **{found}** raise any error or warning "
        f"({_percent(found, len(counted))}). Of those named, {placed} are named at their place ({_percent(placed, exact)}).",
    ]


def _method(
    record: Entry, ran: Sequence[Entry], faults: Sequence[Any], counted: Sequence[Entry], note: str
) -> Iterator[str]:
    crashes = [seed for seed in record["seeds"] if "crash" in seed]
    first, last = record["seeds"][0]["seed"], record["seeds"][-1]["seed"]
    yield "A program is composed by a seed: one of the architectures below, its sizes, its data, its loss, an optimizer,"
    yield "a schedule, and a loop in one of the usual idioms. It is examined by `debugkit.check` and `debugkit.watch`."
    yield "Then up to four operators are drawn by the seed, of different families, and each is planted alone and"
    yield "examined. An operator is an edit that a person could make by mistake. It states which codes name the fault, and"
    yield "which lines, modules and inputs are its place; some have no code, since debugkit has no rule for them."
    yield ""
    yield "A fault counts if the planted program differs from the healthy one: in what it raises, its losses, gradients,"
    yield "parameters, state or predictions, in the tensors and graphs that it keeps or records, on another device, or"
    yield f"between two runs. {len(faults) - len(counted)} of {len(faults)} planted faults had no effect and are left out."
    yield "An alarm that the healthy program raises, too, does not count as found. *Any* includes findings that are"
    yield "consequences of the fault. Findings at `info` do not count, so a rule that gives only an `info` cannot be exact."
    yield "Programs are tiny, so a leak of memory is smaller here than what DK602 reports, 1 MiB."
    yield ""
    yield "The operators were written from what people get wrong and not from what the rules measure, but by an author who"
    yield "knew the list of rules and had read the pages of some. Programs and operators were tried on seeds below 1000:"
    yield "operators that were no fault everywhere were restricted, and the codes and places of some were corrected after a"
    yield "look at what was reported. The seeds"
    yield f"{first} to {last} were run once, and are shown as they came out; debugkit was not changed for them."
    yield from [_cell(note)] if note else []
    yield f"{_crashed(crashes)} The runs took {sum(seed['all_seconds'] for seed in ran):.0f} CPU seconds."
    yield ""
    yield f"Measured on {record['date']} with Python {record['python']}, torch {record['torch']} and transformers"
    yield f"{record['transformers']} by `python tests/injection/run.py --seeds {first}-{last}`, and then `--record`."
    yield ""


def _crashed(crashes: Sequence[Entry]) -> str:
    if not crashes:
        return "No run crashed or exceeded its limit of processor time."
    numbers = ", ".join(str(seed["seed"]) for seed in crashes)
    return f"Crashed or exceeded their limit of time, and not in the numbers: {len(crashes)} (seeds {numbers})."


def _families(record: Entry, counted: Sequence[Entry]) -> Iterator[str]:
    yield "| family | kinds | faults | exact | any error or warning | at its place, of exact | only at `info` |"
    yield "|---|---|---|---|---|---|---|"
    rows: list[tuple[str, int, list[Entry]]] = []
    for family, title in record["families"].items():
        size = sum(one["family"] == family for one in record["operators"].values())
        rows.append((title, size, [fault for fault in counted if fault["family"] == family]))
    ruled = [fault for fault in counted if record["operators"][fault["operator"]]["codes"]]
    rows.append(("**all**", len(record["operators"]), list(counted)))
    rows.append(("**all with a rule**", sum(bool(one["codes"]) for one in record["operators"].values()), ruled))
    for title, size, faults in rows:
        exact = [fault for fault in faults if fault["result"] == "exact"]
        found = [fault for fault in faults if fault["result"] in ("exact", "otherwise")]
        placed = sum(bool(fault["placed"]) for fault in exact)
        cells = [title, str(size), str(len(faults)), _share(len(exact), len(faults)), _share(len(found), len(faults))]
        cells += [_share(placed, len(exact)), str(sum(bool(fault["info"]) for fault in faults))]
        yield f"| {' | '.join(cells)} |"


def _alarms(alarms: Sequence[tuple[Entry, Entry, Entry]]) -> Iterator[str]:
    if not alarms:
        yield from ("None.", "")
        return
    yield from ("| seed | program | rule | reading | why |", "|---|---|---|---|---|")
    seen = set()
    for seed, alarm, reading in alarms:
        if (key := (seed["seed"], alarm["code"])) not in seen:
            seen.add(key)
            kind, why = KINDS[reading["kind"]], _cell(reading["why"])
            yield f"| {seed['seed']} | `{seed['kind']}` | {_rule(alarm['code'])} | {kind} | {why} |"
    yield ""


def _missed(record: Entry, counted: Sequence[Entry]) -> Iterator[str]:
    """Kinds that no error or warning followed in at least half of their programs."""
    totals = Counter(fault["operator"] for fault in counted)
    missed = Counter(fault["operator"] for fault in counted if fault["result"] == "missed")
    loud = Counter(fault["operator"] for fault in counted if fault["result"] == "missed" and fault["raises"])
    yield from ("In at least half of their programs, no error or warning followed:", "")
    for name, one in record["operators"].items():
        if missed[name] and 2 * missed[name] >= totals[name]:
            rule = f"; rules: {', '.join(_rule(code) for code in one['codes'])}" if one["codes"] else "; no rule"
            raised = f"; {loud[name]} raised an exception" if loud[name] else ""
            yield f"- `{name}`: {_cell(one['what'])}. Missed {missed[name]} of {totals[name]}{raised}{rule}."
    yield ""


def _invalid(invalid: Sequence[Entry], faults: Sequence[tuple[Entry, Entry]]) -> Iterator[str]:
    """What was found wrong with operators after the run, and the numbers without these faults."""
    if not invalid:
        return
    left_out = {(seed, one["operator"]) for one in invalid for seed in one["seeds"]}
    others = [f for seed, f in faults if f["result"] != "no effect" and (seed["seed"], f["operator"]) not in left_out]
    exact = sum(fault["result"] == "exact" for fault in others)
    yield from ("## Found invalid after the run", "", "These faults are in all other numbers of this page:", "")
    for one in invalid:
        seeds = ", ".join(str(seed) for seed in one["seeds"])
        yield f"- `{one['operator']}`, seeds {seeds}: {_cell(one['what'])}"
    yield ""
    yield f"Without them, {exact} of {len(others)} faults are named by a rule for them ({_percent(exact, len(others))})."
    yield ""


def _operators(record: Entry, counted: Sequence[Entry]) -> Iterator[str]:
    yield from ("| kind | mistake | codes | faults | exact | otherwise | missed |", "|---|---|---|---|---|---|---|")
    for name, one in record["operators"].items():
        results = Counter(fault["result"] for fault in counted if fault["operator"] == name)
        numbers = " | ".join(str(results[result]) for result in ("exact", "otherwise", "missed"))
        codes = " ".join(one["codes"]) or "–"
        yield f"| `{name}` | {_cell(one['what'])} | {codes} | {sum(results.values())} | {numbers} |"


def _architectures(record: Entry, ran: Sequence[Entry]) -> Iterator[str]:
    programs = Counter(seed["kind"] for seed in ran)
    yield (
        f"{len(record['kinds'])} kinds, with the number of programs of each: "
        + ", ".join(f"`{name}` {programs[name]}" for name in record["kinds"])
        + "."
    )


def _percent(found: int, total: int) -> str:
    low, high = interval(found, total)
    return f"{100 * found / max(total, 1):.0f} %, interval {100 * low:.0f}–{100 * high:.0f} %"


def _share(found: int, total: int) -> str:
    if not total:
        return "–"
    low, high = interval(found, total)
    return f"{found} ({100 * low:.0f}–{100 * high:.0f} %)"


def _rule(code: str) -> str:
    rule = next(rule for rule in all_rules() if rule.code == code)
    return f"[{code}]({_tables.rule_page(rule).removeprefix('debugkit/')})"


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", r"\|")
