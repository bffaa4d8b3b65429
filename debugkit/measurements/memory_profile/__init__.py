"""How many bytes a training step keeps alive, by purpose and by the module that allocated them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from debugkit.plain_data import PlainData

Phase = Literal["forward", "backward", "optimizer"]
Kind = Literal["parameters", "buffers", "batch", "gradients", "optimizer", "activations", "temporaries"]


@dataclass(frozen=True)
class ModuleBytes(PlainData):
    """Bytes that a module's own operations (without its children) keep alive for backward; `""` is the root or loss."""

    module: str
    bytes: int


@dataclass(frozen=True)
class Peak(PlainData):
    """The moment with the most live bytes: its phase, operation and module, and what the bytes are used for."""

    bytes: int
    phase: Phase
    operation: str
    module: str
    parts: tuple[tuple[Kind, int], ...]


@dataclass(frozen=True)
class MemoryProfile(PlainData):
    """The result of `memory_profile`, in bytes. Storage that several tensors share is counted once.

    `activations` is kept by forward for backward. `after_step` is still alive when the next step starts.
    """

    peak: Peak
    parameters: int
    buffers: int
    batch: int
    gradients: int
    optimizer_state: int
    activations: int
    by_module: tuple[ModuleBytes, ...]
    after_forward: int
    after_backward: int
    after_step: int
    fake_tensors: bool

    def __str__(self) -> str:
        rows = [
            ("parameters", self.parameters),
            ("buffers", self.buffers),
            ("batch", self.batch),
            ("gradients", self.gradients),
            ("optimizer state", self.optimizer_state),
            ("activations kept for backward", self.activations),
        ]
        where = f" in `{self.peak.module}`" if self.peak.module else ""
        lines = [f"Peak {mebibytes(self.peak.bytes)}, in {self.peak.phase}, at {self.peak.operation}{where}", ""]
        lines += [f"  {name:<32}{mebibytes(size):>14}" for name, size in rows]
        lines += ["", "  alive at the peak"]
        lines += [f"    {name:<30}{mebibytes(size):>14}" for name, size in self.peak.parts if size]
        lines += ["", "  activations by module"]
        largest = sorted(self.by_module, key=lambda part: -part.bytes)
        width = max([30, *(len(part.module) for part in largest[:12])])
        lines += [
            f"    {part.module or '(root and loss)':<{width}}{mebibytes(part.bytes):>14}" for part in largest[:12]
        ]
        lines += [f"    … and {len(largest) - 12} more"] if len(largest) > 12 else []
        how = "predicted on tensors without memory" if self.fake_tensors else "counted in a real step"
        return "\n".join([*lines, "", f"  ({how}; a GPU's allocator and workspaces are not included)"])


@dataclass(frozen=True)
class BatchSizeTried(PlainData):
    """One batch size and whether it fits. `peak_bytes` is None if the step ran out of memory."""

    batch_size: int
    fits: bool
    peak_bytes: int | None


@dataclass(frozen=True)
class BatchSizeSearch(PlainData):
    """The result of `find_batch_size`: the largest size that fits, and each size that was tried, in order."""

    batch_size: int
    budget_bytes: int | None
    tried: tuple[BatchSizeTried, ...]

    def __str__(self) -> str:
        budget = "in the device's memory" if self.budget_bytes is None else f"in {mebibytes(self.budget_bytes)}"
        lines = [f"Largest batch that fits {budget}: {self.batch_size}", ""]
        for one in self.tried:
            peak = "out of memory" if one.peak_bytes is None else mebibytes(one.peak_bytes)
            lines.append(f"  {one.batch_size:>8}  {peak:>14}  {'fits' if one.fits else 'too large'}")
        return "\n".join(lines)


def mebibytes(size: int) -> str:
    """`635.2 MiB`; `64.0 KiB` below one, and `4 B` below that."""
    if size < 2**10:
        return f"{size} B"
    return f"{size / 2**20:,.1f} MiB" if size >= 2**20 else f"{size / 2**10:,.1f} KiB"
