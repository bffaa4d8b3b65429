"""Every English text that `lab` prints, with the file that it is in."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from labs.locale.forms import forms
from labs.locale.python_strings import Found, called, raised, strings_in

LABS = Path(__file__).parents[1]
Text = tuple[str, bool, str]
"""A text, whether it is a template, and where it is."""

_GRADER = ("answers", "catalog", "expectations", "extras", "feedback", "files", "grader", "plugin", "queries")
_SANDBOX = ("diagnosis", "fork_server", "launch", "protections", "session", "transport", "values")
_LEARNER = (
    "diff",
    "doctor",
    "export",
    "graded_attempt",
    "hints",
    "next_lab",
    "progress",
    "status",
    "workspace",
)
_CLASSROOM = ("entries", "grade_class", "key", "one_learner", "session", "submissions", "write_templates")
_REFUSING = (
    "learner/pack",
    "learner/paths",
    "learner/pack_source",
    "learner/vscode",
    "classroom/bundle",
    "classroom/part",
)
"""Modules of which only the errors are sentences."""
SHARED = (
    "adapted_policy",
    "demonstrated_actions",
    "invariants",
    "patch_orders",
    "policy_comparison",
    "process_endings",
    "project_settings",
    "reference_training",
    "stock_policy",
    "validation_means",
)
_COMPOSED = re.compile(r"^\{?\w*\}? ?(is|has|lacks) \{|^(is|has) |: this \{|^\{said\}|^ |\{(verb|noun)\}")
"""Parts of sentences that `forms.py` holds whole."""
_COMMAND = re.compile(
    r"lab (list|run|grade|hint|diagnose|open) \S+$|lab hint|lab diagnose|(python|debugkit|import|def) |from \S+ import "
    r"|^<\?xml|test_\w+/|\{\w+\}/|# @package|defaults: \[|\{modes\}|[\w ]+, raising$"
)


def all_texts() -> Iterator[Text]:
    """Each text as often as it occurs."""
    yield from _of_the_forms()
    yield from _of_the_commands()
    folders = (("grading", _GRADER), ("grading/sandbox", _SANDBOX), ("learner", _LEARNER), ("classroom", _CLASSROOM))
    for folder, names in folders:
        for name in names:
            yield from _of_python(LABS / folder / f"{name}.py", strings_in)
    for name in _REFUSING:
        for text, is_template, place in _of_python(LABS / f"{name}.py", raised):
            if "\n" not in text and not text.startswith("^") and re.search(r"[a-z]{4}", re.sub(r"\{\w+\}", "", text)):
                yield text, is_template, place
    for path in sorted((LABS / "cli").glob("*.py")):
        yield from _of_python(path, _printed)
    yield from _of_the_paths()
    for lab in sorted(LABS.glob("lab[0-9][0-9]_*")):
        yield from _of_a_lab(lab)
    for capstone in sorted((LABS / "capstones").glob("capstone_*/capstone.toml")):
        yield from _of_a_lab(capstone.parent)
    for name in SHARED:
        yield from _of_python(LABS / f"{name}.py", _checked)
    yield from _of_the_mysteries()


def _of_the_mysteries() -> Iterator[Text]:
    """What `lab mystery` says about a program: its checks, its symptom and its hints."""
    from labs.mystery.aspects import ASPECTS
    from labs.mystery.mystery_lab import IN, MAKES, TWO
    from labs.mystery.operators import MEASUREMENTS, OPERATORS, PLACES

    for aspect in ASPECTS:
        yield aspect.title, False, "labs/mystery/aspects.py"
        yield aspect.property, False, "labs/mystery/aspects.py"
    for operator in OPERATORS:
        yield operator.symptom, False, f"labs/mystery/operators ({operator.chapter})"
        yield operator.wrong, False, f"labs/mystery/operators ({operator.chapter})"
    for text in (*PLACES.values(), *MEASUREMENTS.values(), TWO):
        yield text, False, "labs/mystery/operators/operator.py"
    yield IN, True, "labs/mystery/mystery_lab.py"
    yield MAKES, True, "labs/mystery/mystery_lab.py"
    yield "Mystery {number}", True, "labs/mystery/mystery_lab.py"
    for name in ("mystery_lab", "plant"):
        yield from _of_python(LABS / "mystery" / f"{name}.py", raised)


def _of_the_forms() -> Iterator[Text]:
    for text in forms():
        yield text, bool(re.search(r"\{\w+\}", text)), "labs/locale/forms.py"


def _of_the_commands() -> Iterator[Text]:
    """The help of each command and of its options."""
    from typer.main import get_command

    from labs.cli.app import app
    from labs.cli.in_language import with_subcommands

    for command, options in with_subcommands(get_command(app)):
        for holder in (command, *options):
            if getattr(holder, "help", None):
                yield holder.help, False, f"lab {command.name}"


def _of_the_paths() -> Iterator[Text]:
    for path in tomllib.loads((LABS / "paths.toml").read_text(encoding="utf-8")).values():
        for key in ("title", "about"):
            yield path[key], False, "labs/paths.toml"


def _of_a_lab(lab: Path) -> Iterator[Text]:
    file = next(lab / name for name in ("lab.toml", "capstone.toml") if (lab / name).is_file())
    facts = tomllib.loads(file.read_text(encoding="utf-8"))
    where = _place(file)
    for fault in facts.get("faults", ()):
        yield fault["what"], False, where
    yield facts["title"], False, where
    yield facts["symptom"], False, where
    for question in facts.get("questions", ()):
        for key in ("text", "measure", "hint", "unit"):  # a choice is typed as it is
            if question.get(key):
                yield question[key], False, where
    yield from _of_the_solution(LABS.parent / "solutions" / lab.name)
    pieces = re.split(r"^## \d+\s*(.*)$", (lab / "hints.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for title, text in zip(pieces[1::2], pieces[2::2], strict=True):
        yield title.strip(), False, _place(lab / "hints.md")
        yield text.strip(), False, _place(lab / "hints.md")
    yield from _of_python(lab / "checks.py", _checked)


def _of_the_solution(folder: Path) -> Iterator[Text]:
    why = folder / "why.md"
    if why.is_file():  # a capstone has a post-mortem in each language
        yield why.read_text(encoding="utf-8").strip(), False, _place(why)
    if (folder / "answers.toml").is_file():
        for answer in tomllib.loads((folder / "answers.toml").read_text(encoding="utf-8")).values():
            for sentence in answer.get("wrong", {}).values():
                yield sentence, False, _place(folder / "answers.toml")


def _of_python(path: Path, look: object) -> Iterator[Text]:
    assert callable(look)
    for found in look(path.read_text(encoding="utf-8")):
        if not _COMPOSED.search(found.text) and not _COMMAND.match(found.text):
            yield found.text, found.is_template, _place(path)


def _printed(source: str) -> Iterator[Found]:
    """What a module of the command line prints."""
    yield from called(source, {"translated", "message", "paragraph", "notice"})
    yield from called(source, {"next_command"}, 1)
    yield from called(source, {"failure", "print_error"})
    yield from raised(source)
    yield from _in_a_table(source)
    if "_of_the_disk" in source or "OLDEST_PYTHON" in source:
        yield from (found for found in strings_in(source) if found.text.endswith((".", "`", "}")))


def _in_a_table(source: str) -> Iterator[Found]:
    """The last text of each row of a table named SENTENCES."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SENTENCES":
            for *_, text in ast.literal_eval(node.value).values():
                yield Found(text, "{" in text, node.lineno)


def _checked(source: str) -> Iterator[Found]:
    """What a lab's checks say; of the commands to measure with, nothing."""
    commands = {
        keyword.value.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.keyword) and node.arg == "instrument"
        for keyword in [node]
    }
    for found in strings_in(source):
        if found.line not in commands:
            yield found
    yield from called(source, {"expect"}, 1)
    for found in called(source, {"equals"}):
        if found.text.isalpha():
            yield found


def _place(path: Path) -> str:
    return path.relative_to(LABS.parent).as_posix()
