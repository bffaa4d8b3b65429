"""Where one run writes, and whether it is one place."""

from __future__ import annotations

from dataclasses import dataclass

from debugkit.finding import SourceLine


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """One thing that the run writes."""

    role: str
    """`checkpoints`, `logs`, or the config key that names it."""
    written: str
    """The path as the program has it, which may be relative."""
    resolved: str
    """Absolute, as the process that was asked resolves it."""
    declared: bool
    """True if the caller said so, False if a config key's name suggests it."""
    at: SourceLine | None = None

    @property
    def relative(self) -> bool:
        """Whether it depends on the working directory."""
        return not self.written.startswith(("/", "~")) and self.written[1:2] != ":"


@dataclass(frozen=True, slots=True)
class OutputDirectories:
    """The run directory and everything beside it."""

    run_dir: str
    """Hydra's, absolute."""
    working_dir: str
    """What relative paths start from, now."""
    changes_dir: bool
    """hydra.job.chdir: whether the job runs inside its run directory."""
    places: tuple[OutputPlace, ...]
