"""Error messages are quoted as the installed libraries raise them, and the site's search leads to their entries."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer

import debugkit
from debugkit.rule import all_rules
from labs.grading.catalog import all_labs
from test_commands import commands

EXTENDED_DEPENDS_ON = ("debugkit", "docs", "labs", "solutions", "tests/docs", "mkdocs.yml", "*.md")

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SITE_SEARCH = Path(__file__).with_name("site_search.js")


def _errors() -> ModuleType:
    before = list(sys.path)
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module("_errors")
    finally:
        sys.path[:] = before


PAGE = _errors()
MESSAGES = PAGE.messages()
RAISED = [message for message in MESSAGES if message.verified.startswith("raised: ")]
IN_A_FILE = [message for message in MESSAGES if message.verified.startswith("source: ")]
COMMANDS = {"lab": "labs.cli.app", "debugkit": "debugkit.cli"}

by_anchor = {"ids": lambda message: message.anchor}


def test_there_are_many_and_each_message_is_there_once() -> None:
    assert len(MESSAGES) >= 60
    assert len({message.message for message in MESSAGES}) == len(MESSAGES)
    assert len({message.title for message in MESSAGES}) == len(MESSAGES)


@pytest.mark.parametrize("message", MESSAGES, **by_anchor)
def test_an_entry_says_what_happened_and_why_in_two_sentences(message: Any) -> None:
    assert len(re.findall(r"[.!?](?= |$)", message.means)) == 2
    assert message.means.endswith(".")
    assert message.group in PAGE.GROUPS
    assert message.guide is None or message.guide in PAGE.GUIDES
    assert message.also
    assert set(message.rules) <= {rule.code for rule in all_rules()}
    assert set(message.labs) <= {lab.id for lab in all_labs()}


@pytest.mark.parametrize("message", MESSAGES, **by_anchor)
def test_a_heading_is_the_constant_part_of_its_message(message: Any) -> None:
    rest = message.message
    for part in message.constant_parts:
        assert part in rest, f"{part!r} is not in {rest!r}"
        rest = rest.split(part, 1)[1]


TYPED = {message.measure for message in MESSAGES if PAGE.language(message.measure) == "sh"}
TYPED |= {command for guide in PAGE.GUIDES for command in commands(DOCS / "guides" / f"{guide}.md")}


@pytest.mark.parametrize("command", sorted(TYPED))
def test_a_command_exists(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(command)
    for program, module in COMMANDS.items():
        if program in words:
            (tmp_path / "train.py").touch()
            monkeypatch.chdir(tmp_path)
            name, *arguments = words[words.index(program) + 1 :]
            line = typer.main.get_command(importlib.import_module(module).app)
            line.commands[name].make_context(name, arguments)  # type: ignore[attr-defined]


@pytest.mark.parametrize("message", MESSAGES, **by_anchor)
def test_a_call_can_be_parsed(message: Any) -> None:
    if PAGE.language(message.measure) == "python":
        ast.parse(message.measure)


CALLS = sorted({message.measure for message in MESSAGES if "(debugkit." in message.measure})


@pytest.mark.parametrize("measure", CALLS)
def test_a_call_of_debugkit_runs_as_printed(measure: str, capsys: pytest.CaptureFixture[str]) -> None:
    import torch
    from torch import nn

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2)

        def forward(self, state: torch.Tensor, action: torch.Tensor) -> SimpleNamespace:
            return SimpleNamespace(loss=(self.head(state) - action).pow(2).mean())

    model = Policy()
    given = {
        "debugkit": debugkit,
        "torch": torch,
        "model": model,
        "module": model,
        "batch": {"state": torch.randn(8, 4), "action": torch.randn(8, 2)},
        "loss_fn": lambda model, batch: model(**batch).loss,
        "optimizer": torch.optim.AdamW(model.parameters()),
    }
    exec(measure, given)
    assert capsys.readouterr().out


@pytest.mark.parametrize("message", RAISED, **by_anchor)
def test_a_message_is_raised_as_quoted(message: Any) -> None:
    import torch
    from torch import nn
    from torch.nn import functional as F

    code = message.verified.removeprefix("raised: ")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        said = ""
        try:
            exec(code, {"torch": torch, "nn": nn, "F": F})
        except Exception as error:
            said = str(error)
    said = "\n".join([said, *(str(warning.message) for warning in caught)])
    assert _without_numbers(message.message) in _without_numbers(said)


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "0", text)


@pytest.mark.parametrize("message", IN_A_FILE, **by_anchor)
def test_a_message_is_in_the_source_of_its_library(message: Any) -> None:
    text = "\n".join(_strings(_installed(path)) for path in message.verified.removeprefix("source: ").split(", "))
    for part in message.constant_parts:
        assert part in text, f"{part!r} is not in {message.verified}"


def _installed(path: str) -> str:
    """The text of a file of an installed package, `package/module.py`."""
    name, _, rest = path.partition("/")
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        pytest.skip(f"{name} is not installed")
    return (Path(spec.origin).parent / rest).read_text(encoding="utf-8")


def _strings(source: str) -> str:
    """A file's string constants, each f-string and each concatenation in one piece, a gap where a value is inserted."""
    pieces: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            pieces.append(node.value)
        elif isinstance(node, ast.JoinedStr):
            pieces.append(
                "".join(str(value.value) if isinstance(value, ast.Constant) else "…" for value in node.values)
            )
    return "\n".join(pieces)


def test_every_message_says_how_it_was_checked() -> None:
    for message in MESSAGES:
        how, _, where = message.verified.partition(": ")
        assert how in ("raised", "source", "binary", "documentation"), message.anchor
        if how == "documentation":
            assert urlsplit(where).scheme == "https", message.anchor


def test_the_page_quotes_each_message_and_links_what_exists() -> None:
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    assert page == PAGE.page(all_labs(), all_rules()), "run `python docs/_generate.py`"
    for message in MESSAGES:
        assert message.message in page
        assert f"{{ #{message.anchor} }}" in page
    for guide in PAGE.GUIDES:
        assert (DOCS / "guides" / f"{guide}.md").exists()


def test_every_page_sends_what_is_pasted_through_the_script(site: Path) -> None:
    pages = [page for page in site.rglob("index.html") if "assets/search.js" not in page.read_text(encoding="utf-8")]
    assert not pages


@pytest.fixture(scope="module")
def found(site: Path) -> dict[str, list[str]]:
    """The first results of the site's search, by query: the addresses of the sections of the first page."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: the site's search is JavaScript")
    queries = json.dumps([query for query, _ in [*_queries(), *_parts(), *_fragments()]])
    asked = subprocess.run([node, SITE_SEARCH, site], input=queries, capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stderr
    return json.loads(asked.stdout)


def _queries() -> Iterator[tuple[str, str]]:
    """What people paste, and the entry that must be found: a whole message, without and with a type."""
    for message in MESSAGES:
        yield message.message, message.anchor
        yield f"RuntimeError: {message.message}", message.anchor


def _parts() -> Iterator[tuple[str, str]]:
    """The constant part, half of it, and the other spellings: several messages may begin the same way."""
    for message in MESSAGES:
        words = max(message.constant_parts, key=len).split()
        yield message.title, message.anchor
        yield " ".join(words[: max(4, len(words) // 2)]), message.anchor
        for other in message.also:
            yield other, message.anchor


PASTED = {
    "one of the variables needed for gradient computation has been modified by an inplace operation": (
        "errors/#modified-by-an-inplace-operation"
    ),
    "Trying to backward through the graph a second time": "errors/#backward-a-second-time",
    "returned nan values in its 0th output": "errors/#returned-nan-values",
    "Expected to have finished reduction in the prior iteration before starting a new": "errors/#finished-reduction",
    "loss not decreasing": "guides/not_learning/",
    "loss does not decrease": "guides/not_learning/",
}


def _fragments() -> Iterator[tuple[str, str]]:
    """Each of these whole, and any five or more words of it that follow each other."""
    for message, address in PASTED.items():
        words = message.split()
        yield message, address
        for first in range(len(words)):
            for end in range(first + 5, len(words) + 1):
                yield " ".join(words[first:end]), address


@pytest.mark.slow
def test_the_search_leads_from_any_five_words_of_a_message_to_its_entry(found: dict[str, list[str]]) -> None:
    missed = {query: found[query][:2] for query, address in _fragments() if found[query][:1] != [address]}
    assert not missed


@pytest.mark.slow
def test_the_search_leads_from_a_message_to_its_entry(found: dict[str, list[str]]) -> None:
    missed = [
        f"{query!r} leads to {(found[query] or ['nothing'])[0]}"
        for query, anchor in _queries()
        if found[query][:1] != [f"errors/#{anchor}"]
    ]
    assert not missed, f"{len(missed)} queries:\n" + "\n".join(missed)


@pytest.mark.slow
def test_the_search_leads_from_a_part_to_the_page_or_a_guide(found: dict[str, list[str]]) -> None:
    missed = [
        f"{query!r} leads to {found[query][:3]}"
        for query, _ in _parts()
        if not any(address.startswith(("errors/", "guides/")) for address in found[query][:1])
    ]
    assert len(missed) <= len(list(_parts())) // 10, f"{len(missed)} queries:\n" + "\n".join(missed)
