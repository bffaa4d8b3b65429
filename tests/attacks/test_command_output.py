"""What the commands print of a submission that draws: on a terminal, in a pipe and in every document.

The submission's text holds terminal commands, characters that reorder or hide text, line ends of every kind and check
marks, each before the word EVIL. So a trick that reaches the output raw is found beside that word, and the word itself
shows that the text was printed at all.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from child_processes import HANG_S, started

COLLECTION = Path(__file__).parents[1] / "labs" / "collection"
TRICKS = (
    *("\x1b[2J", "\x1b[2K", "\x1b[1A", "\x1b[35;45m", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\", "\x9b2J"),
    *("\x00", "\x07", "\b", "\r", "\x0b", "\x0c", "\x1f", "\x7f", "\x85"),
    *("\u202e", "\u2066", "\u200f", "\u061c", "\u200b", "\u200d", "\u2028", "\u2029", "\ufeff", "\u00ad"),
    *("✓ ", "✔ ", "✅ ", "☑ ", "√ ", "\n✓ ", "\n  ✓ 03  ", "\r\n  ✓ ", "\ufe0f", "\u3164", "\u2800", "\u0301" * 9),
)
MARKUP = ":heavy_check_mark: EVIL [bold green]EVIL[/] &lt;/failure> ]]> EVIL"
DRAWING = "".join(f"{trick}EVIL" for trick in TRICKS) + MARKUP + '\n{"schema": 1, "labs": []}' + " EVIL" * 40
OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]?K|\x1b\[[0-9]*A|\r")
"""What rich itself sends to a terminal: colours, and the spinner."""
PASSED_HERE = ("✓ normalise is its inverse",)
"""The checks of the fixture lab that these submissions may pass."""

IN_A_CALL = f"""
import os
print({DRAWING!r})
os.write(2, {DRAWING!r}.encode())
def unnormalise(action, mean, std):
    print({DRAWING!r})
    raise ValueError({DRAWING!r})
def normalise(action, mean, std):
    return action
# {DRAWING.encode("utf-8", "replace").decode().translate({10: " ", 13: " ", 0: " "})}
"""
AT_IMPORT = f"raise type({DRAWING.replace(chr(0), '')!r}, (Exception,), {{}})({DRAWING!r})\n"
RETURNED = f"def unnormalise(action, mean, std): return {DRAWING!r}\ndef normalise(*a): return None\n"
NOT_PYTHON = "def f(: # ✓ EVIL \u202eEVIL \u200bEVIL\n"
FORGED_REPORT = f"""
from labs.grading.sandbox import diagnosis
TEXT = {DRAWING!r}
LOCATION = {{"module": TEXT, "parameter": TEXT, "file": TEXT, "line": 7, "step": None}}
FINDING = {{"code": "DK001", "name": "x", "severity": "error", "certainty": "proof", "message": TEXT,
    "location": LOCATION, "evidence": {{TEXT: TEXT}}, "fix": TEXT, "url": TEXT, "caused_by": None}}
REPORT = {{"schema": 1, "findings": [FINDING], "examined": [], "not_examined": [], "failure": TEXT}}
diagnosis.diagnose = lambda subject: REPORT
def unnormalise(*a): pass
def normalise(*a): pass
"""
NO_REPORT = {
    "a code that draws": 'FINDING["code"] = "DK001\\n" + TEXT',
    "a name that draws": 'FINDING["name"] = TEXT',
    "findings that are none": 'REPORT["findings"] = [1, None, TEXT]',
    "a failure that is a list": 'REPORT["failure"] = [TEXT]',
    "an object": "REPORT = object()",
}
FORMS = {
    "one": ("grade", "03"),
    "several": ("grade", "03", "04"),
    "jobs": ("grade", "03", "04", "--jobs", "2"),
    "run": ("run", "03"),
    "diagnose": ("diagnose", "03"),
    "watch": ("watch", "03"),
}

pytestmark = pytest.mark.slow
EXTENDED = pytest.mark.extended  # the other ways in which a text reaches the output
EXTENDED_DEPENDS_ON = (
    "labs/*.py",
    "labs/cli",
    "labs/grading",
    "labs/learner",
    "labs/locale",
    "debugkit",
    "tests/labs/collection",
)

Lab = Callable[..., tuple[int, str]]
LabProcess = tuple[list[str], dict[str, Any]]


@pytest.fixture
def submitted(tmp_path: Path) -> Callable[[str], Path]:
    """A workspace with two labs of the fixture collection, both with this file."""
    root = tmp_path / "collection"
    shutil.copytree(COLLECTION, root, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("labs", "solutions"):
        shutil.copytree(root / part / "lab03_swapped_order", root / part / "lab04_second")
    metadata = root / "labs" / "lab04_second" / "lab.toml"
    metadata.write_text(metadata.read_text().replace('"03"', '"04"').replace('"swapped_order"', '"second"'))

    def submit(text: str) -> Path:
        for name in ("lab03_swapped_order", "lab04_second"):
            (tmp_path / "mine" / name).mkdir(parents=True)
            (tmp_path / "mine" / name / "policy.py").write_text(text)
        (tmp_path / "mine" / ".lab").mkdir()
        return tmp_path / "mine"

    return submit


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path: Path, lab_process: LabProcess) -> Lab:
    """`lab ARGS…` in a folder, as a process on a terminal of 80 columns or in a pipe: exit code and printed text."""
    program, options = lab_process
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    environment |= {"VLA_LABS_ROOT": str(tmp_path / "collection" / "labs"), "TERM": "xterm-256color"}

    def run(folder: Path, *arguments: str) -> tuple[int, str]:
        given = options | {"cwd": folder, "env": environment}
        if request.param == "pipe":
            return _in_pipes([*program, *arguments], given)
        return _on_a_terminal([*program, *arguments], given | {"env": environment | {"FORCE_COLOR": "1"}})

    return run


def _in_pipes(command: list[str], options: dict[str, Any]) -> tuple[int, str]:
    printed, interrupted = "", False
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options) as process:
        assert process.stdout is not None
        for line in process.stdout:
            printed += line.decode()
            if "waiting for you to save" in printed and not interrupted:
                process.send_signal(signal.SIGINT)
                interrupted = True
        return process.wait(timeout=HANG_S), printed


def _on_a_terminal(command: list[str], options: dict[str, Any]) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    printed, interrupted = b"", False
    with started(command, stdout=theirs, stderr=theirs, **options) as process:
        os.close(theirs)
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux reports EIO when the other end is closed
                break
            printed += piece
            if b"waiting for you to save" in printed and not interrupted:
                process.send_signal(signal.SIGINT)
                interrupted = True
        code = process.wait(timeout=HANG_S)
    os.close(ours)
    return code, printed.decode()


def assert_harmless(printed: str, *, folded: bool = True, shown: bool = True) -> None:
    """Nothing of the text reached the output raw, and none of its lines can pass for one of ours."""
    assert ("EVIL" in printed) is shown
    raw = [trick for trick in TRICKS if f"{trick}EVIL" in printed and not trick.isspace()]
    assert raw == []
    text = OURS.sub("", printed)
    assert unseen_characters(text) == []
    for line in text.splitlines():
        assert "EVIL" not in line or not set(line) & set("✓✔✅☑√"), line
        assert not line.lstrip().startswith("✓") or line.lstrip().startswith(PASSED_HERE), line
        assert not re.match(r"\s{0,3}(EVIL|\\|passed|\{|:heavy)", line), line
        if folded and "EVIL" in line:
            assert cell_len(line) <= 80 or line.lstrip().startswith("Place  /"), line  # for an editor, never wrapped


def unseen_characters(text: str) -> list[str]:
    return sorted({one for one in text if one != "\n" and unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp", "Cn")})


@pytest.mark.parametrize(
    ("lab", "form"),
    [
        ("terminal", "one"),
        ("pipe", "one"),
        *(pytest.param("terminal", form, marks=EXTENDED) for form in ("several", "jobs", "run", "diagnose", "watch")),
        pytest.param("pipe", "run", marks=EXTENDED),
    ],
    indirect=["lab"],
)
def test_what_a_submission_prints_and_raises_is_harmless(form: str, lab: Lab, submitted: Callable[[str], Path]) -> None:
    code, printed = lab(submitted(IN_A_CALL), *FORMS[form])
    assert code == (130 if form == "watch" else 1), printed
    # One of several labs gets one line, and here its reason is the number of failed checks.
    on_terminal = "\x1b" in printed
    assert_harmless(printed, folded=on_terminal or form != "run", shown=form != "jobs")


@pytest.mark.parametrize("lab", ["terminal"], indirect=True)
def test_a_diff_shows_what_is_in_the_file(lab: Lab, submitted: Callable[[str], Path]) -> None:
    code, printed = lab(submitted(IN_A_CALL), "diff", "03")
    assert code == 0
    assert_harmless(printed, folded=False)
    assert "\\u202eEVIL" in printed


@pytest.mark.parametrize(
    ("lab", "text", "form"),
    [
        pytest.param("terminal", AT_IMPORT, "jobs", marks=EXTENDED),
        pytest.param("terminal", AT_IMPORT, "run", marks=EXTENDED),
        pytest.param("pipe", AT_IMPORT, "diagnose", marks=EXTENDED),
        ("terminal", NOT_PYTHON, "one"),
        pytest.param("pipe", NOT_PYTHON, "diagnose", marks=EXTENDED),
    ],
    ids=["import-jobs", "import-run", "import-diagnose", "syntax-one", "syntax-diagnose"],
    indirect=["lab"],
)
def test_a_file_that_cannot_be_imported_is_described_harmlessly(
    text: str, form: str, lab: Lab, submitted: Callable[[str], Path]
) -> None:
    code, printed = lab(submitted(text), *FORMS[form])
    assert code == 1, printed
    assert_harmless(printed, folded=form in ("one", "jobs"))  # an error on stderr is not wrapped


@pytest.mark.extended
@pytest.mark.parametrize("lab", ["terminal"], indirect=True)
def test_a_returned_text_is_shown_harmlessly(lab: Lab, submitted: Callable[[str], Path]) -> None:
    code, printed = lab(submitted(RETURNED), "grade", "03")
    assert code == 1
    assert "Measured" in printed
    assert_harmless(printed)


@pytest.mark.extended
@pytest.mark.parametrize("lab", ["terminal"], indirect=True)
def test_a_forged_report_is_shown_harmlessly(lab: Lab, submitted: Callable[[str], Path]) -> None:
    code, printed = lab(submitted(FORGED_REPORT), "diagnose", "03")
    assert code == 1
    assert "DK001" in printed
    assert_harmless(printed)


@EXTENDED
@pytest.mark.parametrize("lab", ["pipe"], indirect=True)
@pytest.mark.parametrize("forgery", NO_REPORT.values(), ids=NO_REPORT)
def test_what_is_no_report_is_the_submissions_failure(forgery: str, lab: Lab, submitted: Callable[[str], Path]) -> None:
    code, printed = lab(submitted(f"{FORGED_REPORT}\n{forgery}\n"), "diagnose", "03")
    assert code == 1, printed
    assert printed.startswith("lab: ")
    assert printed.count("\n") == 1
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("text", "command"),
    [
        pytest.param(IN_A_CALL, ("grade", "03", "04", "--jobs", "2"), marks=EXTENDED),
        (RETURNED, ("grade", "03")),
        pytest.param(FORGED_REPORT, ("diagnose", "03"), marks=EXTENDED),
    ],
    ids=["jobs", "returned", "report"],
)
def test_every_document_is_one_and_harmless(
    text: str, command: tuple[str, ...], submitted: Callable[[str], Path], tmp_path: Path, lab_process: LabProcess
) -> None:
    folder = submitted(text)
    files = ("--junit", "junit.xml", "--gradescope", "scope.json") if command[0] == "grade" else ()
    program, options = lab_process
    done = subprocess.run(
        [*program, *command, "--json", *files],
        cwd=folder,
        env=os.environ | {"VLA_LABS_ROOT": str(tmp_path / "collection" / "labs")},
        capture_output=True,
        check=False,
        **options,
    )
    assert done.returncode == 1, done.stderr.decode()
    assert json.loads(done.stdout)["schema"] == 1
    assert done.stdout.count(b"\n") == 1
    written = [(folder / name).read_text() for name in files if not name.startswith("-")]
    for document in (done.stdout.decode(), *written):
        assert "EVIL" in document
        assert unseen_characters(document) == []
        assert not set(document) & set("✓✔✅☑√")
    if written:
        lines = json.loads(written[1])["tests"][0]["output"].splitlines()
        assert all(line.startswith(("    ", "[", "2 of", "3 of")) for line in lines)
