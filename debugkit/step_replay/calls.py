"""Everything needed to run a module call again exactly: its arguments, random states, modes and buffers.

It is kept for one step only. Tensors are kept as detached aliases, so no graph stays alive. Only buffers that the
forward itself changes (running statistics) are copied. Changes of an argument in place are detected by its version.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from debugkit._torch_private import buffers_of, unchanged_versions, version_of
from debugkit.randomness import Randomness
from debugkit.structure import map_tensors, tensors_in

_SMALL = 1 << 22  # elements; a buffer larger than this is never copied


@dataclass(eq=False)
class ModuleCall:
    """One call of a module by the loop."""

    path: str
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    randomness: Randomness
    grad_enabled: bool
    autocast: dict[str, tuple[bool, torch.dtype]]
    training: tuple[bool, ...]  # one for each of module.modules()
    buffers: dict[str, Tensor]  # before the call; only those that calls change
    versions: tuple[int, ...] | None = None  # of the tensors among the arguments; None if nothing can write to them
    output_gradients: dict[int, Tensor] = field(default_factory=dict)  # by the output tensor's index
    parts: tuple[nn.Module, ...] | None = None  # module.modules() at the call; None if it was read from a snapshot

    def changed_since(self) -> bool:
        """Whether an argument was changed in place after the call, so that it cannot be repeated exactly."""
        return self.versions is not None and self.versions != _versions((self.args, self.kwargs))

    def fresh_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as new leaf tensors: same values, same `requires_grad`, no graph."""
        fresh = map_tensors((self.args, self.kwargs), lambda _, t: t.detach().requires_grad_(t.requires_grad))
        return fresh[0], fresh[1]

    @contextlib.contextmanager
    def as_it_was(self) -> Iterator[None]:
        """Set random states, modes, train/eval flags and buffers as at the call; restore the current ones on exit."""
        now, parts = Randomness.now(), self.parts or tuple(self.module.modules())
        flags = [module.training for module in parts]
        named = {name: buffer for name, buffer in self.module.named_buffers() if buffer.numel() <= _SMALL}
        saved = {name: buffer.detach().clone() for name, buffer in named.items()}
        with contextlib.ExitStack() as modes:
            for buffer in named.values():  # a graph that the loop keeps may have saved them, and checks their versions
                modes.enter_context(unchanged_versions(buffer))
            try:
                _write({name: named[name] for name in self.buffers if name in named}, self.buffers)
                for module, training in zip(parts, self.training, strict=True):
                    module.training = training
                with self._modes():
                    self.randomness.restore()
                    yield
            finally:
                for module, training in zip(parts, flags, strict=True):
                    module.training = training
                _write(named, saved)
                now.restore()

    @contextlib.contextmanager
    def _modes(self) -> Iterator[None]:
        with contextlib.ExitStack() as modes:
            modes.enter_context(torch.set_grad_enabled(self.grad_enabled))
            for device, (enabled, dtype) in self.autocast.items():
                modes.enter_context(torch.autocast(device, enabled=enabled, dtype=dtype))
            yield


class CallRecorder:
    """Records the calls of the current step; call `forget()` at its end."""

    def __init__(self) -> None:
        self.calls: list[ModuleCall] = []
        self._known: weakref.WeakKeyDictionary[nn.Module, _Known] = weakref.WeakKeyDictionary()
        self._before: dict[str, int] | None = None

    def start(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Record a call that begins, and return its index."""
        known = self._known.get(module)
        if known is None:
            known, kept = _Known(tuple(module.modules())[1:]), dict(module.named_buffers())
            self._before = {name: version_of(buffer) for name, buffer in kept.items()}
        else:
            kept, self._before = dict(known.buffers(module)), None
        held_args, held_kwargs = map_tensors((args, kwargs), lambda _, t: _alias(t))
        parts = (module, *known.parts)
        self.calls.append(
            ModuleCall(
                path=path,
                module=module,
                args=held_args,
                kwargs=held_kwargs,
                randomness=Randomness.now(),
                grad_enabled=torch.is_grad_enabled(),
                autocast=_autocast_state(),
                training=tuple([part.training for part in parts]),
                buffers={name: buffer.detach().clone() for name, buffer in kept.items() if buffer.numel() <= _SMALL},
                versions=_versions((held_args, held_kwargs)),
                parts=parts,
            )
        )
        return len(self.calls) - 1

    def end(self, output: Any) -> None:
        """The last call returned `output`: record the gradients that will reach it in this step."""
        call = self.calls[-1]
        if self._before is not None:
            now = {name: version_of(buffer) for name, buffer in call.module.named_buffers()}
            changing = {name for name, version in now.items() if self._before.get(name) != version}
            # BatchNorm's kernel writes its statistics without incrementing their version
            changing |= {name for name in now if name.rpartition(".")[2] in ("running_mean", "running_var")}
            self._known[call.module] = _Known((call.parts or ())[1:], tuple(sorted(changing)))
            call.buffers = {name: buffer for name, buffer in call.buffers.items() if name in changing}
        reached = [
            (index, tensor)
            for index, (_, tensor) in enumerate(tensors_in(output))
            if tensor.requires_grad and tensor.grad_fn is not None
        ]
        numbers = tuple(index for index, tensor in reached if tensor.numel() == 1)
        for index, tensor in reached:
            tensor.register_hook(_keeper(weakref.ref(call), index, numbers))  # type: ignore[no-untyped-call]

    def forget(self) -> None:
        """Release every batch and gradient."""
        self.calls.clear()

    def forget_modules(self) -> None:
        """Look again at the submodules of each module when it is called: they may have been replaced."""
        self._known.clear()


@dataclass(frozen=True, eq=False)
class _Known:
    """What a call of a module has shown: its submodules, without itself, and the buffers that its forward writes to."""

    parts: tuple[nn.Module, ...]
    changing: tuple[str, ...] = ()

    def buffers(self, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
        """The buffers that change, by name; those that were removed since are left out."""
        for name in self.changing:
            path, _, own = name.rpartition(".")
            try:
                buffer = buffers_of(module.get_submodule(path)).get(own)
            except AttributeError:
                continue
            if buffer is not None:
                yield name, buffer


def _keeper(call: weakref.ref[ModuleCall], index: int, numbers: tuple[int, ...]) -> Callable[[Tensor], None]:
    """A hook that records the gradient of an output. The reference is weak: the loop may keep the output longer.

    A model that computes its loss returns it beside the logits. What reaches the logits then comes from the loss, one
    of `numbers`: it would count twice, and keeping it would keep a tensor as large as the logits.
    """

    def keep(gradient: Tensor) -> None:
        if (kept := call()) is not None:
            if index not in numbers and any(number in kept.output_gradients for number in numbers):
                return
            held = kept.output_gradients.get(index)
            kept.output_gradients[index] = gradient.detach() if held is None else held + gradient.detach()

    return keep


def _alias(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _versions(arguments: Any) -> tuple[int, ...]:
    return tuple(version_of(tensor) for _, tensor in tensors_in(arguments))


def _autocast_state() -> dict[str, tuple[bool, torch.dtype]]:
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    return {device: (True, torch.get_autocast_dtype(device)) for device in devices if torch.is_autocast_enabled(device)}


def _write(named: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, buffer in named.items():
            buffer.copy_(values[name])
