"""The operations that a loop runs outside every module, between the model's output and `backward()`: mostly the loss.

A step cannot be run again from there, so what a diagnosis needs is noted as it happens: the range of each result, the
line that asked for it, and the ranges of the gradients that pass its autograd node. There are few such operations;
data preparation, which has no gradient, is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.overrides import TorchFunctionMode

from debugkit.finding import SourceLine
from debugkit.frames import user_line
from debugkit.monitor.timeline import Timeline, has_range
from debugkit.structure import tensors_in

_MOST = 2000
"""Operations noted in one step; a loop that keeps its whole model in functions is beyond what can be afforded."""
_MOST_NODES = 8


class LoopOperations(TorchFunctionMode):
    """`arm()` after a module call, `disarm()` before backward and before the next module call.

    Lies at the bottom of the stack of modes, so that a mode which the loop enters while this is armed, and leaves when
    it is not (or the other way round), still finds itself on top.
    """

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self.timeline = timeline
        self.armed = False
        self.noted = 0

    def arm(self) -> None:
        """Begin to note operations."""
        self.disarm()
        _insert_at_bottom(self)
        self.armed = True

    def disarm(self) -> None:
        """Stop noting.

        `loss.backward()` is itself an operation that this mode hears, and PyTorch puts a mode back when the operation
        is over: what is asked for inside it takes effect through `armed`, and the next call clears the stack.
        """
        self.armed = False
        stack = mode_stack()
        if any(mode is self for mode in stack):
            set_mode_stack([mode for mode in stack if mode is not self])

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if torch.compiler.is_compiling():
            return output
        if self.armed and type(output) is Tensor and output.requires_grad and self.noted < _MOST:
            self._note(getattr(func, "__name__", "operation"), args, kwargs, output)
        return output

    def _note(self, name: str, args: Any, kwargs: Any, output: Tensor) -> None:
        node = output.grad_fn
        if node is None or not has_range(output) or torch._C._functorch.peek_interpreter_stack() is not None:
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
        return [node]  # in place: where the graph stood before is no longer known
    before = {tensor.grad_fn for tensor in inputs}
    built = [node]
    for known in built:
        for behind, _ in known.next_functions:
            if behind is not None and behind not in before and behind not in built and behind.next_functions:
                built.append(behind)
        if len(built) > _MOST_NODES:
            return [node]  # its inputs came by another way, such as an attribute
    return built


def mode_stack() -> list[Any]:
    """PyTorch's function modes now, the outermost first."""
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]


def set_mode_stack(modes: list[Any]) -> None:
    """Make these PyTorch's function modes, the outermost first."""
    for _ in range(torch._C._len_torch_function_stack()):
        torch._C._pop_torch_function_stack()
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)


def _insert_at_bottom(mode: TorchFunctionMode) -> None:
    stack = mode_stack()
    default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    bottom = stack[:1] if stack and stack[0] is default else []  # `torch.set_default_device` insists on the very bottom
    set_mode_stack([*bottom, mode, *stack[len(bottom) :]])
