"""Detectors for training code that runs without an error and is wrong.

    report = debugkit.check(model, batch, loss_fn, optimizer)      # before training; changes nothing
    with debugkit.watch(model, optimizer) as run: ...              # during training, around any loop

Everything is imported when first used: `import debugkit` itself does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from debugkit.version import __version__ as __version__

# The public names are listed twice: here for editors and type checkers, and below by module for the import at run
# time. A test compares the two lists.
if TYPE_CHECKING:
    from debugkit.declare import Declare as Declare
    from debugkit.finding import Certainty as Certainty
    from debugkit.finding import Finding as Finding
    from debugkit.finding import Location as Location
    from debugkit.finding import NotExamined as NotExamined
    from debugkit.finding import Severity as Severity
    from debugkit.finding import SourceLine as SourceLine
    from debugkit.finding import Unexamined as Unexamined
    from debugkit.instruments.detect_overflow import Overflow as Overflow
    from debugkit.instruments.detect_overflow import detect_overflow as detect_overflow
    from debugkit.instruments.explain_hang import explain_hang as explain_hang
    from debugkit.instruments.find_batch_size import BatchSizeSearch as BatchSizeSearch
    from debugkit.instruments.find_batch_size import BatchSizeTried as BatchSizeTried
    from debugkit.instruments.find_batch_size import find_batch_size as find_batch_size
    from debugkit.instruments.find_graph_cut import Cut as Cut
    from debugkit.instruments.find_graph_cut import GraphCut as GraphCut
    from debugkit.instruments.find_graph_cut import find_graph_cut as find_graph_cut
    from debugkit.instruments.first_nonfinite import Extremes as Extremes
    from debugkit.instruments.first_nonfinite import Frame as Frame
    from debugkit.instruments.first_nonfinite import NonfiniteOrigin as NonfiniteOrigin
    from debugkit.instruments.first_nonfinite import first_nonfinite as first_nonfinite
    from debugkit.instruments.gradcheck import GradientCheck as GradientCheck
    from debugkit.instruments.gradcheck import GradientTest as GradientTest
    from debugkit.instruments.gradcheck import WorstEntry as WorstEntry
    from debugkit.instruments.gradcheck import gradcheck as gradcheck
    from debugkit.instruments.gradient_table import GradientRow as GradientRow
    from debugkit.instruments.gradient_table import GradientTable as GradientTable
    from debugkit.instruments.gradient_table import gradient_table as gradient_table
    from debugkit.instruments.memory_profile import MemoryProfile as MemoryProfile
    from debugkit.instruments.memory_profile import ModuleBytes as ModuleBytes
    from debugkit.instruments.memory_profile import Peak as Peak
    from debugkit.instruments.memory_profile import memory_profile as memory_profile
    from debugkit.instruments.overfit_one_batch import Overfit as Overfit
    from debugkit.instruments.overfit_one_batch import Suspect as Suspect
    from debugkit.instruments.overfit_one_batch import overfit_one_batch as overfit_one_batch
    from debugkit.instruments.seed_everything import Seeded as Seeded
    from debugkit.instruments.seed_everything import seed_everything as seed_everything
    from debugkit.instruments.simulate_device import SecondDevice as SecondDevice
    from debugkit.instruments.simulate_device import StrayTensor as StrayTensor
    from debugkit.instruments.simulate_device import simulate_device as simulate_device
    from debugkit.instruments.snapshot_on_failure import snapshot_on_failure as snapshot_on_failure
    from debugkit.instruments.trace_batches import BatchTrace as BatchTrace
    from debugkit.instruments.trace_batches import TracedEnough as TracedEnough
    from debugkit.instruments.trace_batches import trace_batches as trace_batches
    from debugkit.instruments.trace_shapes import ModuleCall as ModuleCall
    from debugkit.instruments.trace_shapes import ShapeFailure as ShapeFailure
    from debugkit.instruments.trace_shapes import ShapeTrace as ShapeTrace
    from debugkit.instruments.trace_shapes import TensorShape as TensorShape
    from debugkit.instruments.trace_shapes import trace_shapes as trace_shapes
    from debugkit.instruments.watch_shapes import ShapeChange as ShapeChange
    from debugkit.instruments.watch_shapes import ShapeError as ShapeError
    from debugkit.instruments.watch_shapes import ShapeHistory as ShapeHistory
    from debugkit.instruments.watch_shapes import watch_shapes as watch_shapes
    from debugkit.loop.losses import Loss as Loss
    from debugkit.on_finding import OnFinding as OnFinding
    from debugkit.preflight import check as check
    from debugkit.report import DebugkitError as DebugkitError
    from debugkit.report import Report as Report
    from debugkit.report import ReportFormatError as ReportFormatError
    from debugkit.rule import UnknownCodeError as UnknownCodeError
    from debugkit.setup import LossFn as LossFn
    from debugkit.setup import SetupError as SetupError
    from debugkit.watched_run import Run as Run
    from debugkit.watched_run import watch as watch

_NAMES = {
    "declare": "Declare",
    "finding": "Certainty Finding Location NotExamined Severity SourceLine Unexamined",
    "instruments.detect_overflow": "Overflow detect_overflow",
    "instruments.explain_hang": "explain_hang",
    "instruments.find_batch_size": "BatchSizeSearch BatchSizeTried find_batch_size",
    "instruments.find_graph_cut": "Cut GraphCut find_graph_cut",
    "instruments.first_nonfinite": "Extremes Frame NonfiniteOrigin first_nonfinite",
    "instruments.gradcheck": "GradientCheck GradientTest WorstEntry gradcheck",
    "instruments.gradient_table": "GradientRow GradientTable gradient_table",
    "instruments.memory_profile": "MemoryProfile ModuleBytes Peak memory_profile",
    "instruments.overfit_one_batch": "Overfit Suspect overfit_one_batch",
    "instruments.seed_everything": "Seeded seed_everything",
    "instruments.simulate_device": "SecondDevice StrayTensor simulate_device",
    "instruments.snapshot_on_failure": "snapshot_on_failure",
    "instruments.trace_batches": "BatchTrace TracedEnough trace_batches",
    "instruments.trace_shapes": "ModuleCall ShapeFailure ShapeTrace TensorShape trace_shapes",
    "instruments.watch_shapes": "ShapeChange ShapeError ShapeHistory watch_shapes",
    "loop.losses": "Loss",
    "on_finding": "OnFinding",
    "preflight": "check",
    "report": "DebugkitError Report ReportFormatError",
    "rule": "UnknownCodeError",
    "setup": "LossFn SetupError",
    "watched_run": "Run watch",
}
_HOMES = {name: f"debugkit.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)

if not TYPE_CHECKING:  # with `__getattr__`, a type checker would accept misspelt names

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module 'debugkit' has no attribute {name!r}")
        import importlib

        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def load_ipython_extension(shell: object) -> None:
    """Add `%%watch` to a notebook; `%load_ext debugkit` calls this with IPython's shell."""
    from debugkit.integrations.notebook import load

    load(shell)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
