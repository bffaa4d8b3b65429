"""What happens when the model is on one device and a tensor that it uses was left on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from debugkit.finding import Severity, SourceLine
from debugkit.observation import measured_by
from debugkit.plain_data import PlainData, show_line


@dataclass(frozen=True)
class StrayTensor(PlainData):
    """A tensor that is not on the model's device, and the first operation that fails because of it.

    `created` is the line that created it. `attribute` is its dotted path if a module holds it (neither as parameter nor
    as buffer, so `.to()` does not move it). `variable` is the name of a global or closure variable. At most one of
    `attribute` and `variable` is set. All three are None if the tensor comes from elsewhere. `trains` is True for an
    `nn.Parameter`.
    """

    phase: Literal["forward", "backward"]
    operation: str
    used: SourceLine | None
    module: str | None
    created: SourceLine | None
    attribute: str | None
    variable: str | None
    shape: tuple[int, ...]
    dtype: str
    message: str
    trains: bool = False

    def __str__(self) -> str:
        kind = f"{self.dtype} {self.shape}"
        if self.attribute is not None:
            source = f"attribute `{self.attribute}`, {kind}, is neither parameter nor buffer: .to() leaves it behind"
        elif self.created is not None:
            source = f"{show_line(self.created)}\n    creates a CPU tensor, {kind}"
        else:
            source = f"`{self.variable}`, {kind}, is on the CPU" if self.variable else f"a CPU tensor, {kind}"
        where = f" in module `{self.module}`" if self.module else ""
        used = f", at {show_line(self.used)}" if self.used else ""
        return f"{source}\n    stops the {self.phase}: {self.operation}{where}{used}\n    {self.message}"


@measured_by(".measure:move_to_second_device", cost=3, requires=("batch",))
@dataclass(frozen=True)
class SecondDevice(PlainData):
    """The result of `simulate_device`; `ok` if forward and backward ran on the device and no tensor was elsewhere.

    A stray tensor is moved when it is found and the run continues, so that each one is named. `not_examined` says, in
    one sentence, why the run ended early; what was found until then counts. `real` is True if the device exists on this
    machine, `declared` if the caller named it. `placed` is the first line of the program that says on which device a
    tensor is made or moved (`device=`, `.to(device)`), in the step.
    """

    device: str
    strays: tuple[StrayTensor, ...]
    forward: bool
    backward: bool
    not_examined: str | None = None
    real: bool = False
    declared: bool = False
    placed: SourceLine | None = None

    @property
    def certain(self) -> bool:
        """Whether the step will run on such a device: it exists, or the caller named it."""
        return self.real or self.declared

    @property
    def severity(self) -> Severity:
        """That of a tensor which the program leaves behind.

        On a simulated device it is certain that the step would fail, but not that the program is meant to run there. It
        is a warning if the program says elsewhere in the step where its tensors go.
        """
        return Severity.ERROR if self.certain else Severity.WARNING if self.placed else Severity.INFO

    @property
    def ok(self) -> bool:
        return not self.strays and self.not_examined is None

    def __str__(self) -> str:
        done = [phase for phase in ("forward", "backward") if getattr(self, phase)]
        lines = [f"Second device ({self.device}): " + ("runs, forward and backward." if self.ok else "")]
        if self.strays:
            lines[0] += f"{len(self.strays)} tensor{'s' * (len(self.strays) > 1)} left on the CPU."
        if self.not_examined is not None:
            reached = " and ".join(done) + " examined. " if done else ""
            lines.append(f"The run ended early. {reached}{self.not_examined}")
        return "\n\n".join([*lines, *(str(stray) for stray in self.strays)])
