"""The trainable parameters are not the declared ones: a freeze pattern matched too much, too little or nothing.

## What it finds
- Declared patterns that match no parameter, trainable parameters that no pattern names, and named parameters that are
  frozen.
- `module.requires_grad = False` or `True`, where every parameter of the module has the other value. A module has no
  such setting: the assignment creates an attribute that nothing reads.
- `parameter.requires_grad_ = False`, which replaces the method and calls nothing.

## Why it hurts
Parameters are frozen by name, and names change: a wrapper adds a prefix, a release renames a tower, and
`if "vision_tower" in name` is never true again. The tower that should stay frozen drifts, or the head that should learn
does not. The loss falls in both cases. An assignment to a module has the same effect: Python accepts it, and a
pretrained backbone is overwritten.

## Evidence
The patterns without a match or the attribute, the affected parameters, and how many numbers they hold. In a watched
loop, parameters that an attribute calls frozen are compared before and after a step, and reported if they changed. In
`check()`, they must have a gradient, and an optimizer must hold them. An attribute that is True while all parameters
are frozen is a `warning`, after eight steps of a watched loop; so is one that is False where no optimizer was passed
in or no gradient can be computed.

## Fix
Correct the pattern, and raise at start-up if a pattern matches nothing. Call `module.requires_grad_(False)`, with an
underscore and parentheses: it sets every parameter.

## When it stays silent
- Nothing is declared (`Declare(trainable=("action_head.*", "*lora_*"))`), and no module has such an attribute.
- A tied parameter is declared if any of its names is. Prefixes that wrappers (compile, DDP, FSDP) add to a name are
  ignored.
- A parameter of the module has the value of the attribute, or had it in an earlier step: it was set in another way.
- The attribute is used: the module's class has an attribute, an argument or a line with this name, the program reads
  it, or a library assigns it.
- No optimizer updates the parameters, as those of a discriminator while the generator trains, or they have no
  gradient, because the module runs under `torch.no_grad()`.

Patterns are compared by `check()` only.

## Cost
One training step more if a module has such an attribute.

## Lesson
[Lab 11](../../lessons/gradients/11_stale_cache.md)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from debugkit.finding import Certainty, Finding, Severity, SourceLine
from debugkit.module_paths import shared_module
from debugkit.observation import measured_by
from debugkit.rule import Context, rule
from debugkit.rule_text import code, counted, module_name, quoted, verb


@dataclass(frozen=True, slots=True)
class PlainAttribute:
    """`requires_grad` on modules, or `requires_grad_` on modules or parameters, with a value that no parameter has."""

    owners: tuple[str, ...]
    of_parameter: bool
    name: str
    value: bool
    parameters: tuple[str, ...]
    numel: int
    trained: bool | None
    """Whether an optimizer updates the parameters; None if no optimizer is known."""
    line: SourceLine | None


@measured_by(".measure:compare_the_trainable_set", cost=0, in_loop=".measure:PlainAttributesProbe")
@dataclass(frozen=True, slots=True)
class TrainableSet:
    """Paths are dotted. A tied parameter is listed under its first name; a pattern may match any of its names."""

    trainable: int
    unmatched: tuple[str, ...]
    """Declared patterns that match no parameter."""
    undeclared: tuple[str, ...]
    """Trainable parameters that no pattern names."""
    frozen: tuple[str, ...]
    """Parameters that a pattern names and that are frozen."""
    numel_undeclared: int
    numel_frozen: int
    attributes: tuple[PlainAttribute, ...] = ()


@rule(
    "DK113",
    name="trainable-set-differs",
    severity=Severity.ERROR,
    certainty=Certainty.PROOF,
    modes=("check", "watch"),
    needs=(TrainableSet,),
)
def judge(seen: TrainableSet, context: Context) -> Iterator[Finding]:
    if seen.unmatched:
        count = len(seen.unmatched)
        yield context.finding(
            f"The pattern{'s' * (count > 1)} {quoted(seen.unmatched)} in `Declare(trainable=…)` "
            f"{verb(count, 'matches', 'match')} no parameter.",
            evidence={"unmatched": list(seen.unmatched), "trainable": seen.trainable},
            fix="Compare the pattern with the names in `model.named_parameters()`.",
        )
    if seen.undeclared:
        yield _finding(seen.undeclared, seen.numel_undeclared, "trainable but not declared", context)
    if seen.frozen:
        yield _finding(seen.frozen, seen.numel_frozen, "declared trainable but frozen", context)
    for attribute in seen.attributes:
        yield _about_attribute(attribute, context)


def _about_attribute(seen: PlainAttribute, context: Context) -> Finding:
    names = [f"{owner}.{seen.name}".lstrip(".") for owner in seen.owners]
    was_set = f"{quoted(names)} {verb(len(names), 'was', 'were')} set to {seen.value}."
    if seen.name == "requires_grad":
        means = "A module has no such setting, so this has no effect"
    else:
        means = "This replaces the method and does not call it"
    count = len(seen.parameters)
    held = f"{counted(count, 'parameter')} {verb(count, 'is', 'are')}"
    is_proof = not seen.value and bool(seen.trained)
    state = "still frozen" if seen.value else "still trained" if is_proof else "still trainable"
    shared = seen.owners[0] if len(seen.owners) == 1 else shared_module(seen.owners)
    owner = code(seen.owners[0]) if seen.of_parameter else module_name(seen.owners[0])
    others = " and the others" if len(names) > 1 else ""
    return context.finding(
        f"{was_set} {means}: {held} {state}.",
        module=shared_module(seen.parameters) if seen.of_parameter else shared,
        parameter=seen.parameters[0] if seen.of_parameter else None,
        at=seen.line,
        evidence={"attributes": names, "value": seen.value, "parameters": list(seen.parameters), "numel": seen.numel},
        fix=f"Call `requires_grad_({seen.value})` of {owner}{others}, before the optimizer is built.",
        severity=None if is_proof else Severity.WARNING,
        certainty=None if is_proof else Certainty.HEURISTIC,
        affects=seen.parameters,
    )


def _finding(paths: tuple[str, ...], numel: int, side: str, context: Context) -> Finding:
    count = len(paths)
    return context.finding(
        f"{counted(count, 'parameter')} {verb(count, 'is', 'are')} {side}: {quoted(paths)}.",
        module=shared_module(paths),
        parameter=paths[0],
        evidence={"parameters": list(paths), "numel": numel},
        fix="Set `requires_grad` from the declared patterns, before the optimizer is built.",
        affects=paths,
    )
