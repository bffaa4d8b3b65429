"""The gradient rules' judges as pure functions: where each threshold lies, and what each folds into one finding."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debugkit.declare import Declare
from debugkit.finding import Finding, NotExamined, Severity, SourceLine
from debugkit.measurements.autograd_graph import AutogradGraph
from debugkit.measurements.gradient_check import GradientTest
from debugkit.measurements.gradient_flow import DeadLayer, GradientFlow, Stack, ZeroGradient
from debugkit.measurements.gradient_flow.depth import decades_per_layer
from debugkit.measurements.graph_cut import BACKWARD_OF, OUTSIDE_PYTHON, REENTRANT, Cut, GraphCut
from debugkit.measurements.optimizer_groups import Duplicate, Group, OptimizerGroups, Orphan, Stranger
from debugkit.rule import Context, Mode, find_rule
from debugkit.rules.dk108_wrong_custom_backward import CustomFunction, CustomFunctions
from debugkit.rules.dk113_trainable_set_differs import TrainableSet
from debugkit.rules.dk114_checkpoint_not_loaded import CheckpointMatch
from debugkit.rules.dk116_linear_stack import MANY, LinearStack, LinearStacks
from debugkit.rules.dk117_frozen_random_head import FARTHEST, FEWEST, FrozenAlone, Head, Heads, Weights
from debugkit.rules.dk119_loss_without_graph import LossesWithoutGraph
from debugkit.rules.dk120_initial_scale import FACTOR, InitialScales, NewLayer
from debugkit.rules.dk121_loss_term_without_graph import LossTerms, Term
from debugkit.rules.dk122_loss_term_outweighs import WeightedTerm, WeightedTerms

shapes = st.sampled_from([(4,), (4, 2), (8, 4)])
sizes = st.floats(1e-6, 1e6)


def judged(code: str, *seen: object, declare: Declare | None = None, mode: Mode = "check") -> list[Finding]:
    rule = find_rule(code)
    return list(rule.judge(*seen, Context(rule, declare or Declare(), mode)))


def groups(**facts: object) -> OptimizerGroups:
    given: dict[str, object] = {"optimizers": 1, "groups": (), "strangers": (), "orphans": (), "duplicates": ()}
    return OptimizerGroups(**(given | facts))  # type: ignore[arg-type]


def flow(**facts: object) -> GradientFlow:
    given: dict[str, object] = {"passes": 3, "alive": ("head.weight",), "zero": (), "relus": (), "stacks": ()}
    return GradientFlow(**(given | facts))  # type: ignore[arg-type]


# DK102 to DK104: optimizers


@given(st.lists(shapes, max_size=3), st.lists(shapes, max_size=3), st.booleans())
def test_strangers_are_stale_only_beside_an_orphan_they_could_have_been(strange, orphaned, mixed) -> None:
    seen = groups(
        strangers=tuple(Stranger("SGD group 0", shape, 1, mixed) for shape in strange),
        orphans=tuple(Orphan(f"m.p{i}", shape, 1) for i, shape in enumerate(orphaned)),
    )
    stale = bool(orphaned) and (any(shape in orphaned for shape in strange) or (mixed and bool(strange)))
    assert len(judged("DK102", seen)) == stale


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4), st.booleans())
def test_an_optimizer_is_accused_only_if_nothing_trains_or_something_is_missing(counts, orphan) -> None:
    seen = groups(
        groups=tuple(Group(f"g{i}", 0, held, min(frozen, held), held, 0.1) for i, (held, frozen) in enumerate(counts)),
        orphans=(Orphan("m.p", (4,), 4),) * orphan,
    )
    nothing = all(frozen >= held for held, frozen in counts)
    missing = orphan and any(held == 0 for held, _ in counts)
    assert len(judged("DK103", seen)) == (nothing or missing)


@pytest.mark.parametrize(
    ("one", "turns", "mode", "severity"),
    [
        (True, 0, "check", Severity.ERROR),
        (True, 0, "watch", Severity.ERROR),
        (False, 0, "check", Severity.WARNING),
        (False, 2, "watch", None),
        (False, 3, "watch", Severity.WARNING),
    ],
)
def test_two_optimizers_that_never_take_turns_do_not_train_together(one, turns, mode, severity) -> None:
    seen = groups(duplicates=(Duplicate("m.p", ("a", "b"), one, turns),))
    assert [finding.severity for finding in judged("DK104", seen, mode=mode)] == ([severity] if severity else [])


# DK105: where the gradient stops


@pytest.mark.parametrize(
    ("operation", "advice"),
    [
        ("detach", "remove `detach`"),
        (REENTRANT, "`use_reentrant=False`"),
        (f"{BACKWARD_OF}Forgets", "from `Forgets.backward`"),
        (OUTSIDE_PYTHON, "in Python"),
    ],
)
def test_the_advice_fits_what_stops_the_gradient(operation: str, advice: str) -> None:
    cut = Cut(operation, None, None, None, ("tower.weight",), 4, 0.1)
    (finding,) = judged("DK105", GraphCut((cut,), 2, 1))
    assert advice in finding.fix
    assert ("remove" in finding.fix) == (operation == "detach")


# DK106: modules without a part


def unused(names: list[str], used: list[str]) -> list[Finding]:
    cut = GraphCut((), len(names) + len(used), len(used), unused=tuple(names))
    return judged("DK106", cut, AutogradGraph(1, tuple(used), tuple(names), tuple(used), ()))


@pytest.mark.parametrize(
    ("names", "used", "found"),
    [
        (["wrist.0.weight", "wrist.2.weight"], ["head.weight"], [("wrist", Severity.WARNING)]),
        (["experts.1.weight"], ["experts.0.weight"], [("experts.1", Severity.INFO)]),
        (["layers.1.mlp.weight"], ["layers.0.mlp.weight", "layers.1.kv.weight"], []),
        (["text.pooler.dense.weight"], ["text.layer.weight"], []),
        (["head.bias"], ["head.weight"], []),
    ],
)
def test_what_takes_no_part_is_one_finding_a_module(names, used, found) -> None:
    assert [(finding.location.module, finding.severity) for finding in unused(names, used)] == found


# DK107: zeros


zeros = st.builds(
    ZeroGradient,
    path=st.sampled_from(["a.0.weight", "a.1.weight", "b.weight", "head.bias"]),
    module=st.just(""),
    numel=st.just(4),
    matrix=st.booleans(),
    after_a_step=st.booleans(),
    one_of_several=st.booleans(),
).map(
    lambda z: ZeroGradient(z.path, z.path.rpartition(".")[0], z.numel, z.matrix, z.after_a_step, z.one_of_several),
)


@given(st.lists(zeros, max_size=5, unique_by=lambda zero: zero.path), st.integers(1, 4))
def test_zeros_that_open_in_a_step_or_stand_beside_a_trained_weight_are_silent(some, passes) -> None:
    guilty = [z for z in some if z.after_a_step and not z.one_of_several and z.module != "head"]
    places = {zero.path.partition(".")[0] for zero in guilty}
    with_a_matrix = {place for place in places if any(z.matrix for z in guilty if z.path.startswith(f"{place}."))}
    found = judged("DK107", flow(passes=passes, zero=tuple(some)))
    assert {finding.location.module for finding in found} == (with_a_matrix if passes >= 3 else set())
    assert len(found) == len({finding.location.module for finding in found})


# DK109 and DK110: change along depth


def stack(gradients: list[float], outputs: list[float] | None = None) -> Stack:
    names = tuple(f"layers.{i}" for i in range(len(gradients)))
    return Stack("layers.*", names, (tuple(gradients),) * 3, (tuple(outputs or [1.0] * len(gradients)),) * 3)


def powers(factor: float, count: int, scale: float = 1.0) -> list[float]:
    return [scale * factor**i for i in range(count)]


@given(st.floats(1.5, 20), st.integers(4, 12), sizes)
def test_vanishing_is_found_exactly_beyond_its_ratio_whatever_the_scale(factor, count, scale) -> None:
    ratio = factor ** (1 - count)
    if math.isclose(ratio, 1e-4, rel_tol=1e-3):
        return
    assert len(judged("DK109", flow(stacks=(stack(powers(factor, count, scale)),)))) == (ratio < 1e-4)
    assert judged("DK109", flow(stacks=(stack(powers(1 / factor, count, scale)),))) == []


@given(st.floats(1.5, 20), st.integers(4, 12), sizes)
def test_exploding_is_found_in_outputs_and_in_gradients_beyond_its_ratio(factor, count, scale) -> None:
    growth = factor ** (count - 1)
    if math.isclose(growth, 1e4, rel_tol=1e-3):
        return
    forward = stack([1.0] * count, powers(factor, count, scale))
    backward = stack(powers(1 / factor, count, scale))
    for each, what in ((forward, "output"), (backward, "gradient")):
        found = judged("DK110", flow(stacks=(each,)))
        assert [f"The {what} grows" in finding.message for finding in found] == [True] * (growth > 1e4)


@given(st.integers(0, 7), st.floats(1e-9, 1e9))
def test_one_odd_layer_among_equal_ones_is_neither(place: int, size: float) -> None:
    odd = [1.0] * 8
    odd[place] = size
    for code in ("DK109", "DK110"):
        assert judged(code, flow(stacks=(stack(odd, odd),))) == []


@given(st.lists(sizes, min_size=3, max_size=9), st.floats(1e-3, 1e3))
def test_slope_does_not_depend_on_scale(values: list[float], scale: float) -> None:
    one, other = decades_per_layer(values), decades_per_layer([scale * value for value in values])
    if one is not None and other is not None:
        assert one == pytest.approx(other, abs=1e-6)


def test_a_zero_along_the_depth_is_left_to_the_rule_on_zeros() -> None:
    assert decades_per_layer([0.0, 1e-3, 1e-2, 1.0]) is None


@pytest.mark.parametrize("code", ["DK107", "DK109", "DK110", "DK111"])
def test_fewer_than_three_passes_decide_nothing(code: str) -> None:
    zero = (ZeroGradient("a.weight", "a", 4, True, True, False),)
    relus = (DeadLayer("a", 16, 16, 64, 16),)
    stacks = (stack(powers(10, 8)), stack(powers(0.1, 8)))
    assert judged(code, flow(passes=3, zero=zero, relus=relus, stacks=stacks))
    assert judged(code, flow(passes=2, zero=zero, relus=relus, stacks=stacks)) == []


# DK111: dead units


@given(st.integers(1, 64), st.integers(0, 64), st.integers(1, 64))
def test_a_layer_is_dead_above_nine_tenths_of_its_units(units: int, dead: int, samples: int) -> None:
    dead = min(dead, units)
    found = judged("DK111", flow(relus=(DeadLayer("act", units, dead, samples, dead),)))
    assert len(found) == (dead > 0.9 * units and units >= 8 and samples >= 16)


# DK108, DK113, DK114


def test_a_function_that_takes_no_float64_is_not_examined() -> None:
    with pytest.raises(NotExamined, match="Kernel cannot be called"):
        judged("DK108", CustomFunctions((), (("Kernel", "RuntimeError: float32 only"),)))


@given(st.booleans(), st.booleans())
def test_a_backward_in_single_precision_is_held_to_a_warning(failed: bool, single: bool) -> None:
    tests = (GradientTest("float64 Jacobian", False, "differs"),) * failed
    found = judged("DK108", CustomFunctions((CustomFunction("F", None, None, (), tests, None, None, single),)))
    assert [f.severity for f in found] == [Severity.WARNING if single else Severity.ERROR] * failed


names = st.lists(st.sampled_from(["a.w", "a.b", "c.w"]), unique=True, max_size=3).map(tuple)


@given(names, names, names)
def test_each_side_of_the_trainable_set_is_one_finding(unmatched, undeclared, frozen) -> None:
    found = judged("DK113", TrainableSet(3, unmatched, undeclared, frozen, 1, 1))
    assert len(found) == bool(unmatched) + bool(undeclared) + bool(frozen)


@given(names, names, names, st.none() | st.just("the optimizer has taken steps"))
def test_missing_names_are_told_once_and_values_only_before_training(missing, unexpected, different, trained) -> None:
    found = judged("DK114", CheckpointMatch(3, 0, missing, unexpected, different, (), None, trained))
    assert len(found) == bool(missing or unexpected) + bool(different and trained is None)


# DK116: linear layers in a row


@given(st.lists(st.integers(1, 64), min_size=3, max_size=6), st.booleans(), st.booleans())
def test_layers_in_a_row_are_one_layer_unless_a_width_between_them_limits_the_rank(widths, all_train, pooled) -> None:
    names = tuple(f"net.{number}.fc" for number in range(len(widths) - 1))
    stack = LinearStack(names, ("Linear",) * len(names), tuple(widths), all_train, pooled)
    found = judged("DK116", LinearStacks(len(names), (stack,)))
    bottleneck = any(width < widths[0] and width < widths[-1] for width in widths[1:-1])
    assert bool(found) == (all_train and not bottleneck and (len(names) >= MANY or not pooled))
    for finding in found:
        assert finding.severity is (Severity.WARNING if len(names) >= MANY else Severity.INFO)


@pytest.mark.parametrize(
    ("modules", "kinds"),
    [(("vision.proj", "projector"), ("Linear", "Linear")), (("a", "b"), ("Conv2d(1, 3)", "Conv2d(3, 1)"))],
)
def test_layers_of_two_parts_or_of_two_kinds_are_no_stack(modules, kinds) -> None:
    assert not judged("DK116", LinearStacks(2, (LinearStack(modules, kinds, (4, 8, 4), True, False),)))


# DK117: a random head that is frozen


@given(
    st.integers(1, 100),
    st.booleans(),
    st.floats(0, 2),
    st.floats(0, 4),
    st.lists(st.booleans(), max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_a_frozen_head_is_random_alone(weights, frozen, largest, distance, frozen_before, shared, resting) -> None:
    own = Weights("head", weights, frozen, largest, distance)
    before = tuple(Weights(f"body.{number}", 64, rests, 1.0, 0.5) for number, rests in enumerate(frozen_before))
    found = judged("DK117", Heads((Head(own, before, shared, resting),), 2), None)
    new = 0.8 <= largest <= 1.01 and distance < FARTHEST
    alone = not any(frozen_before) and not shared and not resting
    assert bool(found) == (frozen and weights >= FEWEST and new and alone)


def test_a_declared_set_of_trainable_parameters_is_not_judged_again() -> None:
    with pytest.raises(NotExamined, match="declared"):
        judged("DK117", Heads((), 2), None, declare=Declare(trainable=["body.*"]))


@given(st.floats(0, 4), st.booleans(), st.booleans(), st.booleans())
def test_a_layer_frozen_alone_looks_drawn_and_is_between_others(distance, reached, last, partly) -> None:
    alone = FrozenAlone("words", "words.weight", 640, "a normal distribution", distance, 3, reached, last, partly)
    found = judged("DK117", Heads((), 2), alone)
    assert bool(found) == (distance < FARTHEST and reached and not last)
    assert all(finding.location.parameter == "words.weight" for finding in found)
    assert all(str(finding.severity) == ("warning" if partly else "info") for finding in found)


# DK119: a loss that was rebuilt


@given(st.integers(0, 8), st.booleans())
def test_three_steps_without_a_gradient_or_one_that_raised(unreached: int, raised: bool) -> None:
    seen = LossesWithoutGraph(8, unreached, SourceLine("train.py", 5), raised and unreached > 0)
    found = judged("DK119", seen)
    assert bool(found) == (unreached >= 3 or seen.raised)
    assert all(finding.location.line == 5 for finding in found)


def test_a_short_run_without_a_gradient_is_not_examined() -> None:
    with pytest.raises(NotExamined, match="2 of 3"):
        judged("DK119", LossesWithoutGraph(2, 2))


# DK122: a term of the loss that outweighs those of the targets


@given(st.floats(0, 10), st.floats(0, 1e4), st.floats(-10, 10), st.floats(-1e5, 1e5), st.booleans())
def test_a_term_without_targets_outweighs(
    of_targets: float, of_others: float, own: float, other: float, known: bool
) -> None:
    terms = (WeightedTerm(own, True, None), WeightedTerm(other, not known, SourceLine("loss.py", 9)))
    found = judged("DK122", WeightedTerms(terms, of_targets, of_others, ("action",)))
    outweighs = 0 < 100 * of_targets <= of_others and abs(other) >= 500 * abs(own)
    assert bool(found) == (known and outweighs)
    assert all(finding.location.line == 9 for finding in found)


def test_the_largest_term_without_targets_is_named() -> None:
    small, large = (WeightedTerm(value, False, SourceLine("loss.py", int(value))) for value in (600.0, 2_000.0))
    (finding,) = judged("DK122", WeightedTerms((small, WeightedTerm(1.0, True, None), large), 1.0, 200.0, ("action",)))
    assert finding.location.line == 2_000
    assert "200 times" in finding.message
    assert "`action`" in finding.message


# DK120: weights that are drawn too large


@given(st.lists(st.floats(0.1, 20), min_size=1, max_size=5), st.floats(0.1, 4))
def test_half_of_the_layers_or_one_that_is_ten_times_too_large(factors: list[float], inputs: float) -> None:
    layers = tuple(NewLayer(str(at), 64, 0.5, inputs, inputs * factor) for at, factor in enumerate(factors))
    large = [layer for layer in layers if layer.factor >= FACTOR and layer.outputs >= FACTOR]
    expected = (len(large) >= 2 and 2 * len(large) >= len(layers)) or any(layer.factor >= 10 for layer in large)
    found = judged("DK120", InitialScales(layers))
    assert bool(found) == expected
    if found:
        assert found[0].location.module == max(large, key=lambda layer: layer.factor).module


def test_pretrained_layers_are_not_examined() -> None:
    with pytest.raises(NotExamined, match="newly drawn"):
        judged("DK120", InitialScales(()))


# DK121: a term of the loss that was detached


@given(st.sampled_from(["detach", "data", "no_grad", "grad"]), st.floats(0, 10), st.booleans())
def test_a_term_without_a_graph_is_named_where_it_was_detached(operation: str, value: float, here: bool) -> None:
    at, added_at = SourceLine("model.py", 5), SourceLine("/code/train.py", 9)
    found = judged("DK121", LossTerms((Term(operation, at, at if here else added_at, value, "router"),)), None)
    assert bool(found) == (value != 0)
    for finding in found:
        assert (finding.location.line, finding.location.module) == (5, "router")
        assert ("`train.py:9`" in finding.message) == (not here)
        assert ("create_graph=True" in finding.fix) == (operation == "grad")


def test_a_term_whose_operation_has_no_line_is_named_where_it_is_added() -> None:
    (finding,) = judged("DK121", LossTerms((Term("no_grad", None, SourceLine("train.py", 9), 0.5),)), None)
    assert (finding.location.line, finding.location.module) == (9, None)
