"""Where the gradient of a loss stops before it reaches parameters that should train."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine
from debugkit.observation import measured_by
from debugkit.plain_data import PlainData, show_line

BACKWARD_OF = "backward of "
OUTSIDE_PYTHON = "code outside Python"
REENTRANT = "checkpoint(use_reentrant=True)"


@dataclass(frozen=True)
class Cut(PlainData):
    """One place that values pass and gradients do not.

    `operation` is its name in torch (`detach`), `BACKWARD_OF` with the names of custom Functions, or `OUTSIDE_PYTHON`.
    `line` is None if no single line of Python does it (a custom Function that returns None, a compiled block).
    `after_module` is the last module whose output the loss does not reach; `""` is the root. `loss_change` is how far
    the loss moved when the values that pass here were changed, which proves that the loss depends on them.
    """

    operation: str
    line: SourceLine | None
    caller: SourceLine | None
    after_module: str | None
    parameters: tuple[str, ...]
    numel: int
    loss_change: float

    def __str__(self) -> str:
        shown = ", ".join(self.parameters[:3]) + (", …" if len(self.parameters) > 3 else "")
        text = f"{show_line(self.line)}   ({self.operation})" if self.line else f"({self.operation})"
        if self.after_module is not None:
            text += f"\n    after module   {self.after_module or '(the model itself)'}"
        if self.caller is not None:
            text += f"\n    called from    {show_line(self.caller)}"
        plural = "s" if len(self.parameters) != 1 else ""
        return text + f"\n    no gradient    {len(self.parameters)} parameter{plural} ({self.numel:,} numbers): {shown}"


@measured_by(".measure:find_cuts", cost=4, requires=("batch",))
@dataclass(frozen=True)
class GraphCut(PlainData):
    """The result of `find_graph_cut`; true if a cut was found.

    `without_effect` are trainable parameters that were used and get no gradient because the loss does not depend on
    them (a branch whose output is dropped). `held_constant` are those of a structural copy of a trained module, such
    as a target network. `unused` took no part in the step. None of the three is a cut.
    """

    cuts: tuple[Cut, ...]
    trainable: int
    reached: int
    without_effect: tuple[str, ...] = ()
    held_constant: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    another_turn: tuple[str, ...] = ()
    """Parameters of optimizers that hold nothing this loss reaches, while another one does: a GAN's other network."""
    batches: int = 1
    """The number of batches in none of which `unused` took part."""
    mentioned: tuple[str, ...] = ()
    """Those of `unused` whose module is mentioned by code that may run in a step, so another batch may need it."""
    alternatives: tuple[str, ...] = ()
    """Paths of each `ModuleDict` whose entries are chosen by a key."""

    def __bool__(self) -> bool:
        return bool(self.cuts)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of all cuts, each once."""
        return tuple(dict.fromkeys(name for cut in self.cuts for name in cut.parameters))

    def __str__(self) -> str:
        lines = [f"The gradient of the loss reaches {self.reached} of {self.trainable} trainable parameters."]
        if not self.cuts:
            lines.append("No cut: every parameter that the loss depends on gets a gradient.")
        lines += ["", *(str(cut) for cut in self.cuts)] if self.cuts else []
        for label, names in (
            ("the loss does not depend on", self.without_effect),
            ("held constant, as a copy of a trained module", self.held_constant),
            ("took no part in this step", self.unused),
        ):
            if names:
                lines.append(f"    {label}: {', '.join(names[:3])}{', …' if len(names) > 3 else ''} ({len(names)})")
        return "\n".join(lines)
