"""Edits, the form that wrong fixes and alternatives are stored in: each block fits one place, or an error says why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labs.authoring.edits import Edit, EditError, apply_blocks, parse_edit, render_edit
from labs.authoring.make_edit import make_blocks

BASE = """import torch


def first(x):
    \"\"\"The first.\"\"\"
    y = x + 1
    return y


def second(x):
    y = x + 1
    return -y
"""
EDIT = """refused_by: test_it
why: Because.
--- starter/policy.py
@@
     y = x + 1
-    return -y
+    z = -y

+    return z
"""
HEADER = "refused_by: test_it\nwhy: Because.\n--- starter/policy.py\n"


def applied(blocks: str, base: str = BASE) -> str:
    edit = parse_edit(HEADER + blocks, "clamp.diff")
    return apply_blocks(base, edit.blocks["policy.py"], "starter/policy.py", "clamp.diff")


def test_a_block_replaces_the_lines_that_it_names() -> None:
    edit = parse_edit("refused_by: test_it\n--- solution/conf/a.yaml\n@@\n-b: 1\n+b: 2\n+c: 3\n@@\n e: 5\n-f: 6\n", "x")
    assert (edit.header, edit.base) == ({"refused_by": "test_it"}, "solution")
    text = "a: 0\nb: 1\ne: 5\nf: 6\n"
    assert apply_blocks(text, edit.blocks["conf/a.yaml"], "", "") == "a: 0\nb: 2\nc: 3\ne: 5\n"


def test_context_decides_between_two_places_and_an_empty_line_is_context() -> None:
    assert applied("@@\n     y = x + 1\n-    return -y\n+    return 0\n") == BASE.replace("return -y", "return 0")
    assert applied("@@\n+import math\n import torch\n\n\n def first(x):\n\n") == f"import math\n{BASE}"


def test_a_reworded_docstring_and_moved_lines_do_not_matter() -> None:
    block = "@@\n-    return -y\n+    return 0\n"
    reworded = "# new\n\n" + BASE.replace("The first.", "Reworded,\n    over two lines.")
    assert applied(block, reworded) == reworded.replace("return -y", "return 0")


REFUSED = {
    "absent": ("@@\n-    return 7\n", "line 4: starter/policy.py has no such lines:\n        return 7"),
    "other indentation": ("@@\n-  return -y\n", "line 4: starter/policy.py has no such lines"),
    "twice": ("@@\n-    y = x + 1\n", "line 4: starter/policy.py has these lines 2 times (lines 6, 11)"),
    "second block absent": ("@@\n-    return -y\n@@\n-    return 7\n", "line 6: starter/policy.py has no such lines"),
    "overlap": ("@@\n-    return y\n@@\n     return y\n+    pass\n", "line 4 and line 6 overlap"),
    "no context": ("@@\n+    pass\n", "line 4: the block has no line to find"),
    "no change": ("@@\n     return y\n", "line 4: the block changes nothing"),
    "no mark": ("@@\n-    return y\nreturn 0\n", "line 6: a line of a block begins with a space, - or +"),
    "no block": ("", "clamp.diff changes nothing"),
    "empty block": ("@@\n", "line 4: the block has no line to find"),
    "no @@": ("-    return y\n", "line 4: expected one of `refused_by: …`, `named: …`, `near_miss: …`, `why: …`, then"),
    "a file twice": ("@@\n-    return y\n--- starter/policy.py\n@@\n-    return -y\n", "policy.py is edited twice"),
    "two bases": ("@@\n-    return y\n--- solution/b.py\n@@\n-x\n", "of the starter and of the solution"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_exactly_once_is_refused_with_file_and_line(case: str) -> None:
    blocks, said = REFUSED[case]
    with pytest.raises(EditError) as raised:
        applied(blocks)
    assert "clamp.diff" in str(raised.value)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("refused: test_it", "line 1: expected one of `refused_by: …`"),
        ("why: a\nwhy: b", "line 2: why is given twice"),
        ("--- strater/policy.py", "line 1: expected"),
    ],
)
def test_a_misspelt_header_is_refused(header: str, said: str) -> None:
    with pytest.raises(EditError, match=said):
        parse_edit(f"{header}\n{HEADER}@@\n-    return y\n", "clamp.diff")


def test_an_edit_is_rendered_as_it_was_read() -> None:
    assert render_edit(parse_edit(EDIT, "clamp.diff")) == EDIT


LINES = st.lists(st.sampled_from(["a", "b", "    c", "", "# d", "e = 1"]), max_size=12)


@given(before=LINES, after=LINES)
def test_the_edit_made_from_two_versions_gives_the_second(before: list[str], after: list[str]) -> None:
    # Two unlike lines make sure that some context is unique: without one, make_blocks refuses, which is not under test.
    old = "\n".join(["START = 0", *before, "STOP = 1", ""])
    new = "\n".join(["START = 0", *after, "STOP = 1", ""])
    blocks = make_blocks(old, new)
    if old == new:
        assert blocks == ()
        return
    read = parse_edit(render_edit(Edit({}, "starter", {"policy.py": blocks})), "x")
    assert apply_blocks(old, read.blocks["policy.py"], "", "") == new


def test_context_is_code_rather_than_prose_and_no_more_than_needed() -> None:
    before = (
        'def f(x):\n    """Doc."""\n    y = x\n    return y\n\n\ndef g(x):\n    """Doc."""\n    y = x\n    return x\n'
    )
    (block,) = make_blocks(before, before.replace("    y = x\n    return x", "    y = 2\n    return x"))
    assert block.marked == ("-    y = x", "+    y = 2", "     return x")
    (block,) = make_blocks(before, before.replace("    return y", "    return 3"))
    assert block.marked == ("-    return y", "+    return 3")
    (block,) = make_blocks(before, before.replace("    return x", "    z = 1\n    return x"))
    assert block.marked == ("+    z = 1", "     return x")


def test_a_docstring_is_not_context_where_code_would_do() -> None:
    before = 'def f(x):\n    """Only here."""\n    y = x\n    return y\n\n\ndef g(x):\n    y = x\n    return -y\n'
    (block,) = make_blocks(before, before.replace('"""\n    y = x', '"""\n    z = 0\n    y = x'))
    assert block.marked == ("+    z = 0", "     y = x", "     return y")


def test_without_unique_lines_there_is_no_edit() -> None:
    before = "a\n" * 60
    with pytest.raises(EditError, match="occur more than once"):
        make_blocks(before, "a\n" * 30 + "b\n" + "a\n" * 30)
