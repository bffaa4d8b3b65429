"""What an author runs: new, verify and figures, end to end on small labs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from labs.authoring.figures import FiguresError, make_figures
from labs.authoring.scaffold import NewLab, ScaffoldError, scaffold
from labs.authoring.stub import stub
from labs.grading import catalog
from labs.grading.catalog import Lab

EXTENDED_DEPENDS_ON = ("debugkit", "labs", "solutions", "tests/labs")

Run = Callable[..., tuple[int, str, str]]


def test_a_new_lab_is_refused_with_what_is_still_to_be_written(collection: Path, lab_command: Run) -> None:
    code, out, _ = lab_command("dev", "new", "04", "lost_scale", "--chapter", "shapes")
    assert code == 0
    assert "lab dev verify 04" in out
    catalog.all_labs.cache_clear()
    code, out, _ = lab_command("dev", "verify", "04", "--json")
    (only,) = json.loads(out)["labs"]
    assert code == 1
    assert only["grades"] == 0  # nothing is graded while the files have violations
    assert {violation["rule"] for violation in only["violations"]} == {"unfinished"}
    sentences = [violation["sentence"] for violation in only["violations"]]
    assert any(sentence.startswith("lab.toml, line 3") for sentence in sentences)
    assert any(sentence.startswith("clamped.diff, line 2") for sentence in sentences)


@pytest.mark.extended
def test_a_new_lab_passes_once_everything_is_written(collection: Path, lab_command: Run) -> None:
    for path in scaffold(NewLab("04", "lost_scale", "shapes")):
        path.write_text(re.sub(r"TODO\(author\): ", "Written: ", path.read_text()))
    catalog.all_labs.cache_clear()
    code, out, err = lab_command("dev", "verify", "04")
    assert code == 0, out + err
    assert "1 of 1 labs meet the requirements" in out


@pytest.mark.extended
def test_checks_that_look_at_shapes_alone_are_refused(lab: Lab, lab_command: Run) -> None:
    checks = lab.folder / "checks.py"
    blind = re.sub(
        r"expect\((.+?)\)\.(close_to|at_most)\(.*\)", r"expect(\1 is not None).is_true()", checks.read_text()
    )
    checks.write_text(blind)
    code, out, _ = lab_command("dev", "verify", "03", "--json")
    broken = {violation["rule"] for violation in json.loads(out)["labs"][0]["violations"]}
    assert code == 1
    assert broken >= {"starter fails", "wrong fix refused", "stub refused", "checks can fail"}


@pytest.mark.parametrize(
    ("number", "slug", "chapter", "said"),
    [
        ("3", "lost", "shapes", "two digits"),
        ("10", "lost", "gradients", "1 to 9"),
        ("04", "Lost-Scale", "shapes", "is not a slug"),
        ("04", "lost", "loops", "There is no chapter loops"),
        ("14", "lost", "shapes", "belongs to the chapter gradients"),
        ("03", "lost", "shapes", "already exists: lab03_swapped_order"),
    ],
)
def test_a_new_lab_that_cannot_be_is_refused(collection: Path, number: str, slug: str, chapter: str, said: str) -> None:
    before = sorted(collection.rglob("*"))
    with pytest.raises(ScaffoldError, match=said):
        scaffold(NewLab(number, slug, chapter))
    assert sorted(collection.rglob("*")) == before


def test_a_stub_keeps_shapes_and_graph_and_loses_the_values() -> None:
    import torch

    namespace: dict[str, object] = {"__name__": "stub_policy"}
    source = "def double(x):\n    return {'out': (x * 2, 1.5)}\n"
    exec(compile(stub(source), "policy.py", "exec"), namespace)
    value, number = namespace["double"](torch.ones(2, 3, requires_grad=True))["out"]  # type: ignore[operator]
    assert value.shape == (2, 3)
    assert value.requires_grad
    assert (value.abs().max().item(), number) == (0.0, 0.0)


def test_every_public_method_of_a_stub_returns_zeros() -> None:
    import torch

    namespace: dict[str, object] = {"__name__": "stub_policy", "torch": torch}
    source = "class Scale(torch.nn.Module):\n    def unnormalise(self, x):\n        return x * 2, x > 0\n"
    exec(compile(stub(source), "policy.py", "exec"), namespace)
    value, positive = namespace["Scale"]().unnormalise(torch.ones(2, 3))  # type: ignore[operator]
    assert (value.abs().max().item(), positive.dtype, bool(positive.any())) == (0.0, torch.bool, False)


def _figures(lab: Lab, body: str) -> None:
    (lab.folder / "figures.py").write_text(f"def figures(out):\n    {body}\n")


def test_figures_land_beside_the_lesson(lab: Lab, collection: Path, lab_command: Run) -> None:
    _figures(lab, "(out / '03_plateau.svg').write_text('<svg/>')")
    code, out, _ = lab_command("dev", "figures", "03")
    made = collection / "docs" / "lessons" / "shapes" / "figures" / "03_plateau.svg"
    assert (code, made.read_text()) == (0, "<svg/>")
    assert str(made) in out


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("pass", "wrote nothing"),
        ("(out / '03_data.csv').write_text('1')", "a figure is"),
        ("(out / 'plateau.svg').write_text('<svg/>')", "begins with 03_"),
    ],
)
def test_what_is_not_a_figure_is_refused_and_nothing_is_kept(lab: Lab, collection: Path, body: str, said: str) -> None:
    _figures(lab, body)
    with pytest.raises(FiguresError, match=said):
        make_figures(lab)
    assert not (collection / "docs" / "lessons" / "shapes" / "figures").exists()


def test_figures_of_a_lab_without_any_says_so(lab_command: Run) -> None:
    code, _, err = lab_command("dev", "figures", "03")
    assert code == 2
    assert "makes no figures" in err
