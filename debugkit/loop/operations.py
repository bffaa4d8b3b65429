"""The operations that a loop runs outside every module, between the model's output and `backward()`: mostly the loss.

They cannot be repeated later, so everything that a diagnosis needs is recorded when they run: the range of each result,
the user's line, and the ranges of the gradients at its autograd node. There are few such operations. Data preparation,
which has no gradient, is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.overrides import TorchFunctionMode

from debugkit._torch_private import default_device_mode, in_functorch, mode_stack, set_mode_stack
from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.recorders.timeline import Timeline, has_range
from debugkit.structure import tensors_in

_MOST = 2000
"""Operations recorded in one step; recording a whole model that is written as functions would be too expensive."""
_MOST_NODES = 8


class LoopOperations(TorchFunctionMode):
    """Call `arm()` after a module call, and `disarm()` before backward and before the next module call.

    This mode is at the bottom of the stack of modes. A mode that the loop enters while this one is armed, and leaves
    after it is disarmed (or the other way round), is therefore still on top of the stack.
    """

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self.timeline = timeline
        self.armed = False
        self.noted = 0
        self.on_operation: Callable[[str, tuple[Any, ...], Mapping[str, Any]], None] | None = None
        """Called with the name and the arguments of each operation, also of those that are not recorded."""
        self._may_be_on_the_stack = False

    def arm(self) -> None:
        """Start recording."""
        self.disarm()
        _insert_at_bottom(self)
        self.armed = self._may_be_on_the_stack = True

    def disarm(self) -> None:
        """Stop recording.

        `loss.backward()` is itself an operation that this mode intercepts, and PyTorch restores the mode when the
        operation ends. During it, only the flag `armed` has an effect; the next call removes the mode from the stack.
        """
        self.armed = False
        if not self._may_be_on_the_stack:
            return
        self._may_be_on_the_stack = False
        stack = mode_stack()
        if any(mode is self for mode in stack):
            set_mode_stack([mode for mode in stack if mode is not self])

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            output = func(*args, **(kwargs or {}))
        finally:
            self._may_be_on_the_stack = True  # PyTorch puts the mode back now, also if it was disarmed meanwhile
        if torch.compiler.is_compiling():
            return output
        name = getattr(func, "__name__", "operation")
        if self.armed and self.on_operation is not None:
            self.on_operation(name, args, kwargs or {})
        made = args[0] if name == "__setitem__" else output
        if self.armed and type(made) is Tensor and made.requires_grad and self.noted < _MOST:
            self._note(name, args, kwargs, made)
        return output

    def _note(self, name: str, args: Any, kwargs: Any, output: Tensor) -> None:
        node = output.grad_fn
        if node is None or not has_range(output) or in_functorch():
            return
        self.noted += 1
        at = user_line()
        inputs = [tensor for _, tensor in tensors_in((args, kwargs))]
        for tensor in inputs:
            if not tensor.requires_grad and has_range(tensor):
                self.timeline.record("given", name, tensor, at=at)
        self.timeline.record("op", name, output, at=at)
        for built in _nodes_built(node, output, inputs):
            built.register_hook(self._hook_for(built, at))

    def _hook_for(self, node: Node, at: SourceLine | None) -> Callable[..., None]:
        timeline, name = self.timeline, node.name()

        def after(grad_inputs: Sequence[Tensor | None], grad_outputs: Sequence[Tensor | None]) -> None:
            for gradient in grad_outputs:
                if gradient is not None and has_range(gradient):
                    timeline.record("gradient_out", name, gradient, at=at)
            for gradient in grad_inputs:
                if gradient is not None and has_range(gradient):
                    timeline.record("gradient_in", name, gradient, at=at)

        return after


def _nodes_built(node: Node, output: Tensor, inputs: Sequence[Tensor]) -> list[Node]:
    """The nodes that one call added to the graph: `cross_entropy` adds two."""
    if any(tensor is output for tensor in inputs):
        return [node]  # in place: the earlier state of the graph is unknown
    before = {tensor.grad_fn for tensor in inputs}
    built = [node]
    for known in built:
        for behind, _ in known.next_functions:
            if behind is not None and behind not in before and behind not in built and behind.next_functions:
                built.append(behind)
        if len(built) > _MOST_NODES:
            return [node]  # its inputs are not among the arguments, for example attributes
    return built


def _insert_at_bottom(mode: TorchFunctionMode) -> None:
    stack = mode_stack()
    default = default_device_mode()
    bottom = stack[:1] if stack and stack[0] is default else []  # `torch.set_default_device` must be at the very bottom
    set_mode_stack([*bottom, mode, *stack[len(bottom) :]])
