"""A trainable module takes no part in the step: it is never called, and the loss does not reach it.

## What it finds
Trainable modules of which no parameter was used by any operation of the step.

## Why it hurts
Someone meant it to do something: a second projector, a camera's encoder, an auxiliary head that `forward` forgot. It
costs memory and optimizer state, weight decay shrinks it, DistributedDataParallel refuses it (DK801), and a checkpoint
ships random weights under a promising name.

## Evidence
Its parameters, how many the loss reached, and whether a sibling in the same list was used.

## Fix
Call it, or delete it; if it is for another stage of training, freeze it.

## When it stays silent
Frozen modules, modules that no optimizer holds, parameters used without calling their module, the last layer of a
prefix that serves for its keys and values alone, and the pooler that an encoder brings with it. Where a sibling in the
same `ModuleList` was used (an expert that no token chose, a dropped layer, the head of another embodiment) it is
`info`, and so is the table of words of a backbone that is given `inputs_embeds` (pi0's action expert).

## Cost
Free: it shares the pass of DK105.

## Lesson
No lab of its own; [Lab 05](../../lessons/shapes/05_skipped_skip.md) has a branch that is never taken.
"""

from __future__ import annotations

from collections.abc import Iterator

from debugkit.finding import Certainty, Finding, Severity
from debugkit.observations.autograd_graph import AutogradGraph
from debugkit.observations.graph_cut import GraphCut
from debugkit.registry import Context, rule

POOLER = "pooler"
"""transformers' encoders bring one, whoever reads their hidden states instead."""
WORD_TABLES = ("embed_tokens", "wte", "word_embeddings")
"""What transformers calls a language model's table of words, idle wherever it is given `inputs_embeds`."""


@rule(
    "DK106",
    name="unused-module",
    severity=Severity.WARNING,
    certainty=Certainty.PROOF,
    cost="F",
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
        sibling, backbone = _used_sibling(module, used), _used_backbone(module, used)
        yield context.finding(
            f"{module or 'The model'} takes no part in the step: {len(parameters)} trainable parameters are not used."
            + (f" Its sibling {sibling} is." if sibling else "")
            + (f" {backbone} reads embeddings that others made." if backbone else ""),
            module=module,
            evidence={"parameters": parameters, "used_sibling": sibling, "reached": seen.reached},
            fix=f"Call {module or 'it'} in forward(), or remove it; freeze it if another stage trains it.",
            severity=Severity.INFO if sibling or backbone else None,
            affects=parameters,
        )


def _whole_modules(unused: list[str], used: list[str]) -> dict[str, list[str]]:
    """Unused parameters by the outermost module of which nothing is used."""
    groups: dict[str, list[str]] = {}
    for name in unused:
        parts = name.split(".")[:-1]
        paths = [".".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        whole = (path for path in paths if not any(other.startswith(f"{path}.") for other in used))
        if (module := next(whole, None)) is not None:
            groups.setdefault(module, []).append(name)
    return groups


def _used_sibling(module: str, used: list[str]) -> str | None:
    """Another entry of the same list that was used."""
    parts = module.split(".")
    for place, part in enumerate(parts):
        if part.isdigit():
            before = ".".join(parts[:place])
            for name in used:
                if name.startswith(f"{before}."):
                    return ".".join(name.split(".")[: place + 1])
    return None


def _used_backbone(module: str, used: list[str]) -> str | None:
    """The backbone whose table of words this is, if anything else of it was used."""
    backbone, _, name = module.rpartition(".")
    is_used = any(other.startswith(f"{backbone}.") for other in used)
    return backbone if backbone and name in WORD_TABLES and is_used else None


def _is_last_layer_in_part(module: str, used: list[str]) -> bool:
    """Whether this is part of the last entry of a list, of which another part is used: its keys and values."""
    parts = module.split(".")
    for place, part in enumerate(parts[:-1]):
        if part.isdigit():
            before = ".".join(parts[:place])
            indices = [name.split(".")[place] for name in used if name.startswith(f"{before}.")]
            numbers = [int(index) for index in indices if index.isdigit()]
            if numbers and int(part) == max(numbers):
                return True
    return False
