"""A rule's page: its docstring, and what a stranger needs beside it: an example, how to run it alone, related rules.

The examples are in `rule_examples/dkNNN`: a wrong and a right program, and what the wrong one prints, which
`_rule_examples.py` writes.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import _tables

from debugkit.rule import Rule, all_rules
from labs.grading.catalog import all_labs

EXAMPLES = _tables.DOCS / "rule_examples"
NO_FINDING = "No findings; 1 rule examined."
RELATED = 5
"""How many related rules a page names."""
_MODES = {"call": "[`call`](../command_line.md#watch-an-unmodified-script-run)"}
"""A mode whose name does not say enough."""


def rule_page(rule: Rule) -> str:
    """The text of one rule's page, below `docs/debugkit/rules/`."""
    summary, _, body = rule.page.partition("\n")
    before, lesson, _ = body.strip().partition("## Lesson\n")
    found, evidence, after = before.partition("## Evidence\n")
    modes = ", ".join(_MODES.get(mode, f"`{mode}`") for mode in rule.modes)
    lesson_text = body.strip().removeprefix(before).removeprefix(lesson).strip()
    return "\n".join(
        [
            "---",
            f"title: {rule.code} {rule.name}",
            f"description: {_quoted(summary)}",
            "---",
            f"# {rule.code} {rule.name}",
            "",
            summary,
            "",
            "| Severity | Certainty | Cost | Runs in |",
            "|---|---|---|---|",
            f"| {rule.severity} | {rule.certainty} | {rule.cost_in_words} | {modes} |",
            "",
            found.strip(),
            "",
            "## Example",
            *_example(rule),
            f"{evidence}{after}".strip(),
            "",
            "## Run only this rule",
            _alone(rule),
            "",
            "## Accept a finding",
            _accepted(rule),
            "",
            "## Lesson",
            lesson_text,
            "",
            "## Related",
            *_related(rule),
            "",
            f'<p class="source">Source: <a href="{{{{repository}}}}/tree/main/{_folder(rule)}">{_folder(rule)}</a></p>',
            "",
        ]
    )


def _example(rule: Rule) -> list[str]:
    folder = EXAMPLES / rule.code.lower()
    missing = [name for name in ("wrong.py", "right.py", "finding.txt") if not (folder / name).exists()]
    if missing:
        raise SystemExit(
            f"{rule.code} has no docs/rule_examples/{folder.name}/{missing[0]}: write wrong.py and right.py, "
            f"then run `python docs/_rule_examples.py {rule.code}`."
        )
    wrong, right = (folder.joinpath(f"{name}.py").read_text(encoding="utf-8") for name in ("wrong", "right"))
    changed = _changed_lines(wrong, right)
    lines = []
    for title, text, marked in (("Wrong", wrong, changed[0]), ("Right", right, changed[1])):
        highlight = f' hl_lines="{" ".join(map(str, marked))}"' if marked else ""
        block = f'```python title="{title.lower()}.py"{highlight}\n{text.rstrip()}\n```'
        lines += [f'=== "{title}"', "", _indented(block), ""]
    finding = folder.joinpath("finding.txt").read_text(encoding="utf-8").rstrip()
    return [
        *lines,
        "`python wrong.py` prints:",
        "",
        f"```text\n{finding}\n```",
        "",
        f"`python right.py` ends with `{NO_FINDING}`",
        "",
    ]


def _changed_lines(wrong: str, right: str) -> tuple[list[int], list[int]]:
    """The numbers of the lines that only one of the two programs has."""
    blocks = difflib.SequenceMatcher(None, wrong.splitlines(), right.splitlines(), autojunk=False).get_opcodes()
    edits = [block for block in blocks if block[0] != "equal"]
    return (
        [number + 1 for _, first, last, _, _ in edits for number in range(first, last)],
        [number + 1 for _, _, _, first, last in edits for number in range(first, last)],
    )


def _alone(rule: Rule) -> str:
    if rule.modes == ("config",):
        return f'`check_config(…, select="{rule.code}")`, as in the example. [More about Hydra](../hydra.md).'
    if rule.modes == ("watch",):
        return (
            f'`debugkit.watch(…, select="{rule.code}")`, as in the example, or on an unmodified script: '
            f"`debugkit run --select {rule.code} train.py`. [More about watch](../watch.md)."
        )
    return (
        f'`debugkit.check(…, select="{rule.code}")`, or on a function that returns the arguments: '
        f"`debugkit check build.py:build --select {rule.code}`. [More about check](../check.md)."
    )


def _accepted(rule: Rule) -> str:
    if rule.modes in (("config",), ("watch",)):
        call = "check_config" if rule.modes == ("config",) else "watch"
        return (
            f'Pass `ignore="{rule.code}"` to `{call}` with the reason in a comment beside it. '
            "[Other ways](../accept.md) accept single findings."
        )
    return (
        f'Pass `ignore={{"{rule.code}": "the reason"}}` to `check`: the report shows the reason. '
        "[Other ways](../accept.md) accept single findings."
    )


def _related(rule: Rule) -> list[str]:
    labs = [lab for lab in all_labs() if rule.code in lab.rules]
    lines = [f"- Lab {_tables.lesson_link(lab, '../../', numbered=True)} teaches it." for lab in labs]
    lines += [f"- {_tables.rule_link(other, '../../')} {other.name}: {other.summary}" for other in related_rules(rule)]
    signs = [sign.title for sign in _tables.signs() if rule.code in sign.rules]
    lines.append(f"- [What do you see?](../../symptoms.md) lists it under: {'; '.join(signs)}.")
    return [line.replace("../../debugkit/rules/", "") for line in lines]


def related_rules(rule: Rule) -> list[Rule]:
    """Rules that explain this one's findings or are explained by them, share its observations, or its symptoms."""
    others = [other for other in all_rules() if other is not rule]
    signs = [sign for sign in _tables.signs() if rule.code in sign.rules]
    groups = (
        [other for other in others if other.code in rule.consequence_of or rule.code in other.consequence_of],
        [other for other in others if set(other.needs) & set(rule.needs)],
        [other for other in others if other.family == rule.family and any(other.code in s.rules for s in signs)],
        [other for other in others if any(other.code in sign.rules for sign in signs)],
    )
    found = dict.fromkeys(other for group in groups for other in group)
    return list(found)[:RELATED] or [other for other in others if other.family == rule.family][:RELATED]


def _folder(rule: Rule) -> str:
    return Path(*rule.module.split(".")).as_posix()


def _indented(block: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in block.splitlines())


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
