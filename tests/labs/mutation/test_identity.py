"""Ids name a change, not a line number: they survive formatting, comments and edits elsewhere."""

from __future__ import annotations

from labs.authoring.mutation.mutants import mutants_from

SOURCE = '''import torch


def loss(error, mask):
    """The mean."""
    weight = torch.where(mask, 0.0, 2.0)
    return (weight * error.detach()).mean(dim=-1)


def again(error):
    return error.detach()
'''
REFORMATTED = '''import torch

LIMIT = "new"


def before(error):
    """Another function above."""
    return error


def loss(error, mask):  # changed
    weight = torch.where(
        mask,
        0.0,
        2.0,
    )

    # the mean
    return (weight * error.detach()).mean(
        dim=-1,
    )


def again(error):
    return error.detach()
'''


def ids(source: str, starter: str = "x = 1\n") -> dict[str, str]:
    return {one.id: one.summary for one in mutants_from({"policy.py": starter}, {"policy.py": source})}


def test_ids_survive_formatting_comments_and_code_above() -> None:
    assert set(ids(SOURCE)) <= set(ids(REFORMATTED))
    assert len(ids(SOURCE)) > 15


def test_an_edit_of_a_line_renames_its_mutants_and_no_others() -> None:
    edited = ids(SOURCE.replace("0.0, 2.0", "0.0, 3.0"))
    renamed = {name for name in ids(SOURCE) if name not in edited}
    assert renamed
    assert all("where" in ids(SOURCE)[name] or "2.0" in ids(SOURCE)[name] for name in renamed)


def test_an_equal_line_in_another_function_has_another_id() -> None:
    one = "def f(x):\n    return x.detach()\n"
    other = "def g(x):\n    return x.detach()\n"
    before = [name for name in ids(one) if name.startswith("drop_detach")]
    after = [name for name in ids(f"{other}\n\n{one}") if name.startswith("drop_detach")]
    assert len(before) == 1
    assert after[1:] == before
    assert after[0] != f"{before[0]}-2"


def test_the_same_change_twice_on_one_line_is_counted() -> None:
    twice = [name for name in ids("def f(x):\n    return x.detach() * x.detach()\n") if name.startswith("drop_detach")]
    assert len(twice) == 2
    assert twice[1] == f"{twice[0]}-2"


def test_ids_are_unique() -> None:
    mutants = list(mutants_from({"policy.py": "x = 1\n"}, {"policy.py": SOURCE}))
    assert len({one.id for one in mutants}) == len(mutants)
