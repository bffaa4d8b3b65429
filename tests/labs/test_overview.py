"""`lab list` and similar commands: fast, readable on any terminal, and with JSON for scripts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version

import pytest

from child_processes import HANG_S, run, started
from labs.learner.workspace import Workspace

Run = Callable[..., tuple[int, str, str]]

LIST_AND_REPORT = """
import sys
from labs.cli import main
code = main(["list"])
heavy = {"torch", "transformers", "pydantic", "numpy", "asyncio", "pytest"} & set(sys.modules)
print(code, sorted(heavy), file=sys.stderr)
"""


def test_list_imports_nothing_heavy(in_workspace: Workspace) -> None:
    done = run([sys.executable, "-c", LIST_AND_REPORT], check=True)
    assert done.stderr.strip() == "0 []"


def test_list_costs_at_most_three_times_typer_and_rich(in_workspace: Workspace) -> None:
    base = "import typer, rich.console, rich.table"
    listing = "from labs.cli import main; main(['list'])"
    # CPU seconds, the least of three of each, in turn: what else the machine does is not counted.
    pairs = [(_cpu_seconds(base), _cpu_seconds(listing)) for _ in range(3)]
    assert min(cost for _, cost in pairs) <= 3 * min(cost for cost, _ in pairs)


def _cpu_seconds(code: str) -> float:
    report = f"{code}\nimport os, sys; t = os.times(); sys.stderr.write(str(t.user + t.system))"
    done = run([sys.executable, "-c", report], check=True)
    return float(done.stderr)


def test_list_as_json_has_the_documented_form(lab_command: Run) -> None:
    code, out, err = lab_command("list", "--json")
    document = json.loads(out)
    assert (code, err, document["schema"]) == (0, "", 1)
    (only,) = document["labs"]
    assert list(only) == [
        *("id", "slug", "title", "chapter", "difficulty", "minutes", "loudness", "prerequisites"),
        *("rules", "status"),
    ]
    assert (only["id"], only["status"], only["rules"]) == ("03", "new", [])


def test_list_follows_a_lab_from_new_to_given_up(lab_command: Run) -> None:
    def status() -> str:
        return json.loads(lab_command("list", "--json")[1])["labs"][0]["status"]

    assert status() == "new"
    lab_command("start", "03")
    assert status() == "started"
    lab_command("solution", "03", "--give-up")
    assert status() == "given_up"


@pytest.mark.parametrize("columns", [30, 40, 60, 80, 200])
def test_list_keeps_within_the_terminal(lab_command: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = lab_command("list")
    assert code == 0
    beside_commands = [line for line in out.splitlines() if "next" not in line]  # a command is never wrapped
    assert max(map(len, beside_commands)) <= columns
    assert "03" in out


def test_a_pipe_gets_no_escape_codes(lab_command: Run) -> None:
    for arguments in (("list",), ("start", "03"), ("diff", "03"), ("progress",), ("hint", "03")):
        assert "\x1b" not in lab_command(*arguments)[1]


def test_no_color_is_respected_on_a_terminal(in_workspace: Workspace) -> None:
    import pty

    def shown(**environment: str) -> bytes:
        primary, secondary = pty.openpty()
        command = [sys.executable, "-m", "labs.cli", "list"]
        with started(command, stdout=secondary, env={**os.environ, "TERM": "xterm-256color", **environment}) as child:
            os.close(secondary)
            content = b""
            while True:
                try:
                    chunk = os.read(primary, 65536)
                except OSError:  # Linux says EIO when the other end is closed
                    break
                if not chunk:
                    break
                content += chunk
            os.close(primary)
            assert child.wait(timeout=HANG_S) == 0
        return content

    green_or_grey = (b"\x1b[90m", b"\x1b[36m", b"\x1b[1;36m")
    assert any(code in shown() for code in green_or_grey)
    assert not any(code in shown(NO_COLOR="1") for code in green_or_grey)


def test_start_says_where_what_and_next(lab_command: Run, in_workspace: Workspace) -> None:
    code, out, _ = lab_command("start", "03")
    assert code == 0
    assert str(in_workspace.root / "lab03_swapped_order" / "policy.py") in out
    assert "/lessons/shapes/03_swapped_order/" in out
    assert "lab run 03" in out
    assert "lab grade 03" in out


def test_a_title_with_brackets_is_shown_as_it_is(collection, lab_command: Run) -> None:
    metadata = collection / "labs" / "lab03_swapped_order" / "lab.toml"
    metadata.write_text(metadata.read_text().replace("The arm that overshoots", "The [bold] arm[/]"))
    for arguments in (("list",), ("start", "03"), ("progress",)):
        code, out, err = lab_command(*arguments)
        assert code == 0, err
        assert "The [bold] arm[/]" in out


@pytest.mark.parametrize("name", ["a folder", ":heavy_check_mark: \x1b[2J\r✓ [bold]passed[/]\n  ✓ \u202e"])
def test_the_name_of_a_folder_is_shown_and_never_obeyed(lab_command: Run, in_workspace: Workspace, name: str) -> None:
    printed = "".join(lab_command("init", name)[1:])
    for verb in ("start", "reset", "diff", "run"):
        printed += "".join(lab_command(verb, "03", "--workspace", name)[1:])
    (in_workspace.root / name / "lab03_swapped_order" / "policy.py").unlink()
    printed += "".join(lab_command("diff", "03", "--workspace", name)[1:])
    printed += "".join(lab_command("diff", "03", "--workspace", f"{name} elsewhere")[1:])
    assert not set(printed) & {"\x1b", "\r", "✓", "✔", "\u202e"}
    assert printed.count(name if name == "a folder" else ":heavy_check_mark: \\x1b[2J") >= 6


def test_the_next_command_can_be_copied_whatever_the_folders_name(lab_command: Run, in_workspace: Workspace) -> None:
    assert "cd 'my labs; rm -r x' && lab list" in lab_command("init", "my labs; rm -r x")[1]


def test_open_prints_the_address(lab_command: Run) -> None:
    code, out, _ = lab_command("open", "swapped_order")
    assert code == 0
    assert "https://" in out


def test_init_makes_the_current_folder_a_workspace(lab_command: Run, in_workspace: Workspace, tmp_path) -> None:
    (tmp_path / "fresh").mkdir()
    os.chdir(tmp_path / "fresh")
    assert lab_command("init", ".")[0] == 0
    assert lab_command("start", "03")[0] == 0
    assert (tmp_path / "fresh" / "lab03_swapped_order" / "policy.py").is_file()


def test_progress_without_a_started_lab_shows_what_to_do(lab_command: Run) -> None:
    code, out, _ = lab_command("progress")
    assert code == 0
    assert "lab list" in out


def test_solution_is_refused_before_a_pass(lab_command: Run) -> None:
    lab_command("start", "03")
    code, out, err = lab_command("solution", "03")
    assert (code, out) == (2, "")
    assert "--give-up" in err


def test_giving_up_shows_the_solution_and_leaves_the_attempt(lab_command: Run, in_workspace: Workspace) -> None:
    lab_command("start", "03")
    attempt = in_workspace.root / "lab03_swapped_order" / "policy.py"
    attempt.write_text("mine = 1\n")
    code, out, _ = lab_command("solution", "03", "--give-up")
    assert code == 0
    assert "+    return action * std + mean" in out
    assert "in the opposite order" in " ".join(out.split())
    assert attempt.read_text() == "mine = 1\n"


def test_diff_shows_what_was_changed(lab_command: Run, in_workspace: Workspace) -> None:
    lab_command("start", "03")
    assert "You have not changed lab 03" in lab_command("diff", "03")[1]
    attempt = in_workspace.root / "lab03_swapped_order" / "policy.py"
    attempt.write_text(attempt.read_text().replace("(action + mean)", "(action - mean)"))
    out = lab_command("diff", "03")[1]
    assert "-    return (action + mean) * std" in out
    assert "+    return (action - mean) * std" in out


def test_the_version_is_printed_without_a_command(lab_command: Run) -> None:
    assert lab_command("--version") == (0, f"vla-debug-lab {version('vla-debug-lab')}\n", "")


def test_the_bare_command_is_help_and_nothing_after_it(lab_command: Run) -> None:
    code, out, err = lab_command()
    assert code == 0
    assert "diagnose" in out
    assert err == ""
