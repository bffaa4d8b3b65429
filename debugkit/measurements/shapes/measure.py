"""Records the shapes, dtypes and devices of every module call and, for an exception, the module and the reason."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from debugkit._torch_private import BATCH_NORMS, CONVOLUTIONS
from debugkit.finding import NotExamined
from debugkit.frames import raising_line
from debugkit.measurements.shapes import ModuleCall, ShapeFailure, ShapeTrace, TensorShape
from debugkit.probe import Phase, Probe
from debugkit.recorders.module_calls import ModuleCalls
from debugkit.setup import TrainingSetup
from debugkit.structure import tensors_in


class ShapeProbe(Probe[ShapeTrace]):
    """Records the shapes of every module call. Keeps shapes and addresses, which identify producers, but no tensors.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    >>> with ShapeProbe(TrainingSetup.of(model)) as probe:
    ...     _ = model(torch.ones(2, 4))
    >>> [(call.module, str(call.outputs[0])) for call in probe.observation.calls]
    [('0', '(2, 3)'), ('1', '(2, 3)'), ('', '(2, 3)')]
    """

    partial = True
    watch_steps = 1

    def __init__(self, setup: TrainingSetup) -> None:
        super().__init__(setup)
        self._calls: list[ModuleCall] = []
        self._failure: ShapeFailure | None = None
        self._running: list[tuple[str, nn.Module, list[TensorShape], list[int]]] = []
        self._failed: tuple[str, nn.Module, list[TensorShape], list[int]] | None = None
        self._made_at: dict[int, tuple[str, weakref.ref[Tensor]]] = {}  # address of an output → the module that made it
        self._hooks = ModuleCalls(setup.model.named_modules(), before=self._before, after=self._after, also_raised=True)

    def __enter__(self) -> Self:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.remove()
        self._made_at.clear()
        self._running.clear()
        self._failed = None

    def step_failed(self, error: Exception, phase: Phase) -> None:
        if phase == "forward":
            self.explain(error)

    def explain(self, error: Exception) -> None:
        """Record which module raised `error`. Call it while the probe is still attached."""
        if self._failed is not None:
            path, module, shapes, addresses = self._failed
        else:
            path, module, shapes, addresses = "", self.setup.model, [], []
        expected, received = _misfit(module, shapes)
        message = str(error).strip().partition("\n")[0]
        self._failure = ShapeFailure(
            module=path,
            kind=type(module).__name__,
            message=f"{type(error).__name__}: {message}",
            line=raising_line(error.__traceback__),
            inputs=tuple(shapes),
            expected=expected,
            received=received,
            producer=next((producer for a in addresses if (producer := self._producer_of(a)) is not None), None),
            fields_that_fit_expected=fields_holding(self.setup.model, expected),
            fields_that_fit_received=fields_holding(self.setup.model, received),
            parameter_dtype=next((shape_of(p).dtype for p in module.parameters(recurse=False)), None),
        )

    @property
    def observation(self) -> ShapeTrace:
        """All calls since the probe was entered. Raises NotExamined if no module ran."""
        if not self._calls and self._failure is None:
            raise NotExamined("No module ran.")
        return ShapeTrace(tuple(self._calls), self._failure)

    def _producer_of(self, address: int) -> str | None:
        """The module whose output is at this address; None once that output is freed, since memory is reused."""
        made = self._made_at.get(address)
        return made[0] if made is not None and made[1]() is not None else None

    def _before(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        tensors = [t for _, t in tensors_in((args, kwargs))]
        self._running.append((path, module, [shape_of(t) for t in tensors], [_address(t) for t in tensors]))

    def _after(self, path: str, module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        # also_raised: also called for modules that raised, innermost first and without an output.
        running = self._running.pop() if self._running else (path, module, [], [])
        if output is None and self._failed is None:
            self._failed = running
        outputs = [t for _, t in tensors_in(output)]
        for tensor in outputs:
            if self._producer_of(_address(tensor)) is None:  # the innermost module that returned it
                self._made_at[_address(tensor)] = (path, weakref.ref(tensor))
        if output is not None:
            self._failed = None  # an earlier exception was caught, or a module returned None
            shapes = tuple(shape_of(t) for t in outputs)
            self._calls.append(ModuleCall(path, type(module).__name__, tuple(running[2]), shapes, *_size(module)))


def shape_of(tensor: Tensor) -> TensorShape:
    """The tensor's shape, dtype and device."""
    return TensorShape(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), str(tensor.device))


def fields_holding(model: nn.Module, size: int | None) -> tuple[str, ...]:
    """The config fields of the model, or of a module in it, whose value is `size`. Widths come first."""
    if size is None:
        return ()
    found = [name for config in _configs(model) for name, value in _fields(*config) if value == size]
    widths = ("size", "dim", "width", "channels", "features", "embd", "d_model")
    return tuple(sorted(dict.fromkeys(found), key=lambda name: not name.lower().endswith(widths)))[:4]


def _address(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor.untyped_storage())
    except (RuntimeError, NotImplementedError):  # a sparse tensor, or one without memory
        return id(tensor)


def _size(module: nn.Module) -> tuple[int, int]:
    parameters = [p for p in module.parameters() if not isinstance(p, nn.parameter.UninitializedParameter)]
    return sum(p.numel() for p in parameters), sum(p.numel() for p in parameters if p.requires_grad)


def _misfit(module: nn.Module, inputs: list[TensorShape]) -> tuple[int | None, int | None]:
    """Expected and received size, for classes with an attribute that determines the size of the first input."""
    shape = inputs[0].shape if inputs else ()
    for kind, attribute, dimension in _MUST_FIT:
        if isinstance(module, kind) and len(shape) >= abs(dimension):
            value = getattr(module, attribute)
            expected = value[-1] if isinstance(value, tuple) else value
            # A convolution may get one sample without its batch dimension.
            at = dimension if dimension < 0 or len(shape) > dimension else 0
            return (expected, shape[at]) if shape[at] != expected else (None, None)
    return None, None


_MUST_FIT: tuple[tuple[Any, str, int], ...] = (
    (nn.Linear, "in_features", -1),
    (nn.Bilinear, "in1_features", -1),
    (CONVOLUTIONS, "in_channels", 1),
    (BATCH_NORMS, "num_features", 1),
    (nn.LayerNorm, "normalized_shape", -1),
    (nn.MultiheadAttention, "embed_dim", -1),
    (nn.modules.rnn.RNNBase, "input_size", -1),
)


def _configs(model: nn.Module) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for path, module in model.named_modules():
        for name in ("config", "cfg", "hparams"):
            config = module.__dict__.get(name)
            if config is not None and id(config) not in seen:
                seen.add(id(config))
                yield f"{path}.{name}".lstrip("."), config


def _fields(path: str, config: Any, depth: int = 3) -> Iterator[tuple[str, int]]:
    items = (
        config.items() if isinstance(config, Mapping) else vars(config).items() if hasattr(config, "__dict__") else ()
    )
    for name, value in list(items):
        if isinstance(value, int) and not isinstance(value, bool):
            yield f"{path}.{name}", value
        elif depth and not str(name).startswith("_") and _has_fields(value):
            yield from _fields(f"{path}.{name}", value, depth - 1)


def _has_fields(value: Any) -> bool:
    if isinstance(value, type | nn.Module | torch.dtype):
        return False
    return isinstance(value, Mapping) or hasattr(value, "__dict__")
