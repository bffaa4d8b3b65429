"""Wrong fixes and alternatives: read from edits, shown as whole files, and stored from whole files."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from labs.authoring.edits import EditError
from labs.authoring.lab_module import load_variant
from labs.authoring.variants import alternatives, find_variant, read_variant, variant_paths, wrong_fixes
from labs.grading.catalog import Lab, all_labs, find

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A lab with two editable files, in which starter and solution differ."""
    made = msgspec.structs.replace(find("03"), editable=("train.py", "conf/config.yaml"))
    monkeypatch.setattr("labs.grading.catalog.LABS_ROOT", tmp_path / "labs")
    monkeypatch.setattr("labs.grading.catalog.SOLUTIONS_ROOT", tmp_path / "solutions")
    for folder, x, a in ((made.folder, 1, 1), (made.solution, 2, 2)):
        (folder / "conf").mkdir(parents=True)
        (folder / "train.py").write_text(f"x = {x}\ny = 0\n")
        (folder / "conf" / "config.yaml").write_text(f"a: {a}\n")
    (made.folder / "wrong_fixes").mkdir()
    return made


def test_a_variant_is_its_base_with_one_file_edited(two_files: Lab) -> None:
    (two_files.folder / "wrong_fixes" / "other.diff").write_text(
        "refused_by: test_it\nwhy: because\n--- starter/conf/config.yaml\n@@\n-a: 1\n+a: 7\n"
    )
    (two_files.solution / "alternative_way.diff").write_text(
        "why: also correct\n--- solution/train.py\n@@\n-x = 2\n+x = 3\n"
    )
    (wrong,), (other,) = wrong_fixes(two_files), alternatives(two_files)
    assert (wrong.name, wrong.wrong, wrong.refused_by, wrong.why) == ("other", True, "test_it", "because")
    assert wrong.files(two_files) == {"train.py": "x = 1\ny = 0\n", "conf/config.yaml": "a: 7\n"}
    assert (other.name, other.wrong, other.refused_by, other.why) == ("alternative_way", False, None, "also correct")
    assert other.files(two_files) == {"train.py": "x = 3\ny = 0\n", "conf/config.yaml": "a: 2\n"}


def test_a_file_that_no_learner_edits_is_refused(two_files: Lab) -> None:
    (two_files.folder / "wrong_fixes" / "other.diff").write_text("--- starter/conf/typo.yaml\n@@\n-a: 1\n")
    (wrong,) = wrong_fixes(two_files)
    with pytest.raises(EditError, match=r"edits conf/typo\.yaml, which is not one of the editable files: train\.py"):
        wrong.files(two_files)


@pytest.mark.parametrize("lab", all_labs(), ids=lambda lab: lab.name)
def test_every_shipped_edit_fits_its_base(lab: Lab) -> None:
    """The first to fail where a starter or solution was changed without the edits that quote it."""
    for path in variant_paths(lab):
        variant = read_variant(path)
        files = variant.files(lab)
        for name in variant.edit.blocks:
            assert name in lab.editable
            if name.endswith(".py"):
                ast.parse(files[name])


def test_the_edit_that_the_contributing_guide_shows_is_one_that_ships() -> None:
    guide = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = guide.split("```diff\n")[1].split("```")[0]
    assert shown == (find("03").folder / "wrong_fixes" / "average_over_targets.diff").read_text(encoding="utf-8")


def test_show_prints_the_whole_file_or_lists_what_there_is(lab: Lab, lab_command: Run, tmp_path: Path) -> None:
    whole = (lab.folder / "policy.py").read_text().replace("(action + mean) * std", "action * std")
    assert lab_command("dev", "show", "03", "drop_the_mean") == (0, whole, "")
    assert lab_command("dev", "show", "03", "drop_the_mean", "--out", str(tmp_path / "whole.py"))[0] == 0
    assert (tmp_path / "whole.py").read_text() == whole
    code, out, _ = lab_command("dev", "show", "03")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if not line.startswith("    ")] == [
        *("clamp", "drop_the_mean", "tuned_gain", "alternative_addcmul")
    ]
    code, _, err = lab_command("dev", "show", "03", "drop_the_men")
    assert code == 2
    assert "no wrong fix or alternative drop_the_men. There are: clamp, drop_the_mean" in err
    code, _, err = lab_command("dev", "show", "03", "clamp", "--file", "probe.py")
    assert (code, "probe.py is not one of the editable files" in err) == (2, True)


def test_a_whole_file_is_stored_as_a_small_edit(lab: Lab, lab_command: Run, tmp_path: Path) -> None:
    whole = tmp_path / "mine.py"
    whole.write_text((lab.solution / "policy.py").read_text().replace("action * std + mean", "action * std - mean"))
    store = ("dev", "store", "03", "minus", str(whole))
    code, _, err = lab_command(*store, "--why", "The sign is wrong.")
    assert (code, "minus is new: it needs --refused-by" in err) == (2, True)
    assert lab_command(*store, "--why", "The sign is wrong.", "--refused-by", "test_round_trip")[0] == 0
    stored = lab.folder / "wrong_fixes" / "minus.diff"
    assert stored.read_text() == (
        "refused_by: test_round_trip\nwhy: The sign is wrong.\n--- starter/policy.py\n@@\n"
        "-    return (action + mean) * std\n+    return action * std - mean\n"
    )
    whole.write_text(whole.read_text().replace("action * std - mean", "mean - action * std"))
    assert lab_command(*store)[0] == 0  # again: its check and its sentence stay
    assert "--- starter/" in stored.read_text()
    again = find_variant(lab, "minus")
    assert (again.refused_by, again.why) == ("test_round_trip", "The sign is wrong.")
    assert again.files(lab) == {"policy.py": whole.read_text()}


def test_the_smaller_of_the_two_edits_is_stored(lab: Lab, lab_command: Run, tmp_path: Path) -> None:
    whole = tmp_path / "mine.py"
    for folder, base in ((lab.solution, "solution"), (lab.folder, "starter")):
        whole.write_text((folder / "policy.py").read_text() + "\nX = 1\n")
        store = ("dev", "store", "03", "one_more", str(whole), "--why", "x", "--refused-by", "test_round_trip")
        assert lab_command(*store)[0] == 0
        text = (lab.folder / "wrong_fixes" / "one_more.diff").read_text()
        assert (f"--- {base}/policy.py" in text, text.count("@@")) == (True, 1)


def test_an_alternative_is_stored_beside_the_solution(lab: Lab, lab_command: Run, tmp_path: Path) -> None:
    whole = tmp_path / "mine.py"
    whole.write_text((lab.solution / "policy.py").read_text().replace("action * std + mean", "mean + std * action"))
    assert lab_command("dev", "store", "03", "alternative_order", str(whole), "--why", "Any order.")[0] == 0
    assert (lab.solution / "alternative_order.diff").read_text().startswith("why: Any order.\n--- ")
    assert find_variant(lab, "alternative_order").files(lab) == {"policy.py": whole.read_text()}


@pytest.mark.parametrize(
    ("name", "text", "options", "said"),
    [
        ("Minus", "x = 1\n", (), "is not a name for a variant"),
        ("minus", "x = 1\n", ("--file", "probe.py"), "probe.py is not one of the editable files"),
        ("minus", None, (), "The file is the same as the starter's policy.py"),
    ],
)
def test_what_cannot_be_stored_is_refused(
    lab: Lab, lab_command: Run, tmp_path: Path, name: str, text: str | None, options: tuple[str, ...], said: str
) -> None:
    whole = tmp_path / "mine.py"
    whole.write_text((lab.folder / "policy.py").read_text() if text is None else text)
    before = sorted(lab.folder.rglob("*"))
    code, _, err = lab_command(
        "dev", "store", "03", name, str(whole), "--why", "x", "--refused-by", "test_round_trip", *options
    )
    assert code == 2
    assert said in err
    assert sorted(lab.folder.rglob("*")) == before


def test_where_the_other_files_differ_the_edit_starts_from_the_variants_own_base(
    two_files: Lab, tmp_path: Path
) -> None:
    from labs.authoring.store_variant import store_variant

    # One line differs from the solution's and two from the starter's, but the configuration must be the starter's.
    path = store_variant(two_files, "both", "x = 2\ny = 5\n", refused_by="test_it", why="because")
    assert "--- starter/train.py" in path.read_text()
    path = store_variant(two_files, "alternative_both", "x = 1\ny = 5\n", why="because")
    assert "--- solution/train.py" in path.read_text()


def test_a_variant_can_be_imported(lab: Lab) -> None:
    import torch

    module = load_variant(lab, "drop_the_mean")
    assert module.unnormalise(torch.ones(1, 2), torch.ones(2), torch.full((2,), 3.0)).tolist() == [[3.0, 3.0]]
