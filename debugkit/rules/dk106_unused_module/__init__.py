"""A trainable module takes no part in the step: it is never called, and the loss does not reach it.

## What it finds
Trainable modules none of whose parameters is used by any operation of the step.

## Why it hurts
The module was added for a reason: a second projector, a camera's encoder, an auxiliary head that `forward` does not
call. It costs memory and optimizer state, weight decay shrinks it, DistributedDataParallel raises because of it
(DK801), and the checkpoint contains random weights under its name.

## Evidence
The module's parameters, how many parameters the loss reached, and whether a sibling in the same list was used.

## Fix
Call the module or delete it. If it belongs to another stage of training, freeze it.

## When it stays silent
- Frozen modules, and modules that no optimizer holds.
- Parameters that are used without a call of their module.
- The last layer of a prefix that is needed only for its keys and values.
- The pooler that an encoder contains by default.

The finding is `info` if another module of the same `ModuleList` was used (an expert that no token selected, a dropped
layer, the head of another embodiment). The same holds for a `ModuleDict`, unless the code reads its entries by name, as
attributes. It is
`info` too if fewer than three batches were tried and the code of the step mentions the module: pass `dataloader=`, of
which eight batches are then tried. The same holds for the word embedding of a backbone that receives `inputs_embeds`
(pi0's action expert).

## Cost
Shares the passes of DK105.

## Lesson
No lab of its own; [Lab 05](../../lessons/shapes/05_blurry_vision.md) has a branch that is never taken.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.measurements.autograd_graph import AutogradGraph
from debugkit.measurements.graph_cut import GraphCut
from debugkit.rule import Context, rule
from debugkit.rule_text import counted, module_name, sentence, verb

BATCHES = 3
"""With fewer batches, a module that the code mentions may belong to another one."""
POOLER = "pooler"
"""transformers' encoders contain one even if the model uses their hidden states."""
WORD_TABLES = ("embed_tokens", "wte", "word_embeddings")
"""transformers' names of a language model's word embedding, which is unused if the model receives `inputs_embeds`."""


@rule(
    "DK106",
    name="unused-module",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    modes=("check",),
    needs=(GraphCut, AutogradGraph),
    consequence_of=("DK801",),
)
def judge(seen: GraphCut, graph: AutogradGraph, context: Context) -> Iterator[Finding]:
    unused = set(seen.unused) - set(graph.used) - set(graph.reached)
    used = [name for name in (*graph.reached, *graph.unreached) if name not in unused]
    for module, parameters in _whole_modules(sorted(unused), used).items():
        if _is_last_layer_in_part(module, used) or module.rpartition(".")[2] == POOLER:
            continue
        sibling = _used_sibling(module, used) or _used_alternative(module, used, seen.alternatives)
        backbone = _used_backbone(module, used)
        may_run = seen.batches < BATCHES and set(parameters) <= set(seen.mentioned)
        name, count = module_name(module), len(parameters)
        yield context.finding(
            f"{sentence(name)} takes no part in the step: {counted(count, 'trainable parameter')} "
            f"{verb(count, 'is', 'are')} not used."
            + (f" Its sibling {module_name(sibling)} is used." if sibling else "")
            + (f" {sentence(module_name(backbone))} receives its embeddings from other modules." if backbone else "")
            + (" The code mentions it, so another batch may need it: pass dataloader=." if may_run else ""),
            module=module,
            evidence={
                "parameters": parameters,
                "used_sibling": sibling,
                "reached": seen.reached,
                "batches": seen.batches,
            },
            fix=f"Call {name} in `forward()`, or remove it. Freeze it if another stage trains it.",
            severity=Severity.INFO if sibling or backbone or may_run else None,
            affects=parameters,
        )


def _whole_modules(unused: list[str], used: list[str]) -> dict[str, list[str]]:
    """Unused parameters, grouped by the outermost module that is completely unused."""
    groups: dict[str, list[str]] = {}
    for name in unused:
        parts = name.split(".")[:-1]
        paths = [".".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        whole = (path for path in paths if not any(other.startswith(f"{path}.") for other in used))
        if (module := next(whole, None)) is not None:
            groups.setdefault(module, []).append(name)
    return groups


def _used_sibling(module: str, used: list[str]) -> str | None:
    """A used entry of the same list."""
    parts = module.split(".")
    for place, part in enumerate(parts):
        if part.isdigit():
            before = ".".join(parts[:place])
            for name in used:
                if name.startswith(f"{before}."):
                    return ".".join(name.split(".")[: place + 1])
    return None


def _used_alternative(module: str, used: list[str], alternatives: tuple[str, ...]) -> str | None:
    """A used entry of the same `ModuleDict`."""
    for holder in alternatives:
        if module.startswith(f"{holder}."):
            key = next((n.removeprefix(f"{holder}.").split(".")[0] for n in used if n.startswith(f"{holder}.")), None)
            return f"{holder}.{key}" if key is not None else None
    return None


def _used_backbone(module: str, used: list[str]) -> str | None:
    """The backbone that this word embedding belongs to, if another part of it was used."""
    backbone, _, name = module.rpartition(".")
    is_used = any(other.startswith(f"{backbone}.") for other in used)
    return backbone if backbone and name in WORD_TABLES and is_used else None


def _is_last_layer_in_part(module: str, used: list[str]) -> bool:
    """Whether the module belongs to the last entry of a list, and another part of that entry (keys, values) is used."""
    parts = module.split(".")
    for place, part in enumerate(parts[:-1]):
        if part.isdigit():
            before = ".".join(parts[:place])
            indices = [name.split(".")[place] for name in used if name.startswith(f"{before}.")]
            numbers = [int(index) for index in indices if index.isdigit()]
            if numbers and int(part) == max(numbers):
                return True
    return False
