"""All private PyTorch names that debugkit uses. No other file of debugkit may use one; a test checks this.

Without a name, most functions here give a neutral answer, and what asked for it observes less. The rest have no
fallback, because nothing could replace the name: `mode_stack`, `set_mode_stack`, `version_of`, `sequence_number`,
`schema_of`, `parameters_of`, `buffers_of` and `TorchDispatchMode`. These names are present in torch 2.6 to 2.13. Tests
check both groups, also with the oldest version, `OLDEST`.

`debugkit.module_paths`, which imports no torch, lists the names that wrappers insert into the paths of modules.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.autograd.graph import Node
    from torch.optim.lr_scheduler import LRScheduler

OLDEST = "2.6"
"""The oldest PyTorch version that debugkit supports."""
SET_GRAD_ENABLED = getattr(torch._C, "_set_grad_enabled", None)
"""The function that `torch.no_grad()` calls; a TorchFunctionMode intercepts it. None: no_grad blocks are not named."""
SENSITIVE_TO_MODE: tuple[type[nn.Module], ...] = (
    getattr(nn.modules.dropout, "_DropoutNd", nn.Dropout),
    getattr(nn.modules.batchnorm, "_NormBase", nn.modules.batchnorm.BatchNorm1d),
    nn.RReLU,
)
"""Modules that behave differently in training and in evaluation."""
CONVOLUTIONS: tuple[type[nn.Module], ...] = (getattr(nn.modules.conv, "_ConvNd", nn.Conv2d),)
"""Every convolution of torch.nn."""
BATCH_NORMS: tuple[type[nn.Module], ...] = (getattr(nn.modules.batchnorm, "_BatchNorm", nn.BatchNorm2d),)
"""Every batch normalisation of torch.nn."""

REGISTERED = ("_parameters", "_buffers", "_modules")
"""The attributes in which a module stores its parameters, buffers and submodules."""
LOADER_ITERATOR: type[Any] = getattr(torch.utils.data.dataloader, "_BaseDataLoaderIter", type(iter(())))
"""The class of all iterators of a DataLoader. Without it, the iterators are not observed."""


# What is running


def in_backward() -> bool:
    """Whether this thread runs a backward pass: activation checkpointing calls modules again in one."""
    current = getattr(torch._C, "_current_graph_task_id", None)
    return current is not None and current() != -1


def in_functorch() -> bool:
    """Whether the values are those of a `torch.func` transform. They must not be kept after it."""
    functorch = getattr(torch._C, "_functorch", None)
    peek = getattr(functorch, "peek_interpreter_stack", None)
    return peek is not None and peek() is not None


def in_transform() -> bool:
    """Whether the values are symbols of a tracer or of `torch.func`."""
    tracing = getattr(torch._C, "_get_tracing_state", None)
    return (tracing is not None and tracing() is not None) or in_functorch()


def is_compiled(model: nn.Module) -> bool:
    """Whether `torch.compile` or `model.compile()` was applied to the model or to a part of it."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return any(
        hasattr(part, "_orig_mod")
        or getattr(part, "_compiled_call_impl", None) is not None
        or (dynamo is not None and isinstance(part, dynamo.OptimizedModule))
        for part in model.modules()
    )


def dynamo_is_imported() -> bool:
    """Whether the compiler is loaded, so that a part of the program may be compiled."""
    return "torch._dynamo" in sys.modules


def own_apply(module: nn.Module) -> Callable[[Callable[[Tensor], Tensor]], object] | None:
    """The module's `_apply`, which `.to()` and `.float()` call, if the user's class defines it."""
    found, inherited = getattr(type(module), "_apply", None), getattr(nn.Module, "_apply", None)
    if found is None or inherited is None or found is inherited or found.__module__.startswith("torch."):
        return None
    return functools.partial(found, module)


def autocast_is_enabled(region: Any) -> bool:
    """Whether an autocast region switches autocast on (`torch.autocast(…, enabled=False)` does not)."""
    return bool(getattr(region, "_enabled", True))


# Modes


def mode_stack() -> list[Any]:
    """The current function modes of PyTorch, outermost first."""
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]


def set_mode_stack(modes: Sequence[Any]) -> None:
    """Set the function modes of PyTorch, outermost first."""
    for _ in range(torch._C._len_torch_function_stack()):
        torch._C._pop_torch_function_stack()
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)


def default_device_mode() -> Any:
    """The mode of `torch.set_default_device`, which must be the outermost one; None without it."""
    return getattr(getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None), "device_context", None)


def leave(mode: TorchFunctionMode) -> None:
    """Remove `mode` from torch's stack wherever it is, and keep the others in their order; nothing if it is not there.

    `mode.__exit__()` removes whatever is on top, which may be another one.
    """
    stack = mode_stack()
    if any(entry is mode for entry in stack):
        set_mode_stack([entry for entry in stack if entry is not mode])


def without_dispatch_modes() -> contextlib.AbstractContextManager[Any]:
    """A block whose operations bypass all dispatch modes."""
    disable = getattr(torch.utils._python_dispatch, "_disable_current_modes", contextlib.nullcontext)
    return disable()


def without_torch_function() -> contextlib.AbstractContextManager[Any]:
    """A block whose operations bypass all function modes and tensor subclasses."""
    disable = getattr(torch._C, "DisableTorchFunction", contextlib.nullcontext)
    return disable()


def fake_tensor_mode(*, allow_non_fake_inputs: bool) -> FakeTensorMode:
    """A FakeTensorMode: tensors with shape, dtype and device, without memory. Raises RuntimeError if unsupported."""
    start_autograd_engine()
    mode: FakeTensorMode = _of_fake_tensors("FakeTensorMode")(allow_non_fake_inputs=allow_non_fake_inputs)
    return mode


def start_autograd_engine() -> None:
    """Have the autograd engine start the threads of the devices that exist now. Call it before a FakeTensorMode.

    The engine starts one thread for each device at the first backward of a process, and after that no process forked
    from it can run a backward. In a CUDA build of torch on a machine without a GPU, a FakeTensorMode registers devices
    that do not exist, for the rest of the process, so that a first backward after it would start threads.
    """
    run = getattr(getattr(torch.autograd.Variable, "_execution_engine", None), "run_backward", None)
    if run is None:
        return
    # In a process that was forked after the threads had started, it raises RuntimeError, and nothing can be done.
    with without_torch_function(), without_dispatch_modes(), contextlib.suppress(RuntimeError):
        with torch.inference_mode(False), torch.enable_grad():
            output = torch.zeros((), device="cpu", requires_grad=True) * 1
            gradient = torch.zeros((), device="cpu")
        run((output,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def is_lost_by_a_fork(error: BaseException) -> bool:
    """Whether a backward raised it because the process was forked after the engine had started threads."""
    return isinstance(error, RuntimeError) and "fork-based multiprocessing" in str(error)


def fake_tensor_type() -> type[Tensor]:
    """The class of the tensors of a FakeTensorMode. Raises RuntimeError if unsupported."""
    kind: type[Tensor] = _of_fake_tensors("FakeTensor")
    return kind


def _of_fake_tensors(name: str) -> Any:
    try:
        return getattr(importlib.import_module("torch._subclasses.fake_tensor"), name)
    except (ImportError, AttributeError) as error:
        raise RuntimeError(f"PyTorch {torch.__version__} has no fake tensors where debugkit expects them") from error


FAKE_TENSOR_LOGGER = "torch._subclasses.fake_tensor"
"""The logger to which fake tensors report unsupported operations."""


def operation_that_needs_values(error: BaseException) -> str | None:
    """The operation on fake tensors that failed because its result depends on their values; None for another error."""
    from torch._subclasses import fake_tensor

    kinds = (fake_tensor.DynamicOutputShapeException, fake_tensor.DataDependentOutputException)
    return str(error.func) if isinstance(error, kinds) else None


def register_python_device(name: str, lost: list[BaseException]) -> None:
    """Make `torch.device(name)` a device without memory, once per process. Raises RuntimeError if unsupported.

    `lost` receives each exception that the autograd engine loses: the engine then raises SystemError instead.
    """
    try:
        from torch.utils.backend_registration import (
            _DummyBackendModule,
            _DummyDeviceGuard,
            _setup_privateuseone_for_python_backend,
        )
    except ImportError as error:
        raise RuntimeError(f"PyTorch {torch.__version__} cannot hold a device made in Python; 2.10 can") from error

    class Backend(_DummyBackendModule):
        def is_available(self) -> bool:
            return False  # otherwise torch.tensor(…, device=name) allocates real memory on the device

        def get_amp_supported_dtype(self) -> list[torch.dtype]:
            return [torch.bfloat16, torch.float16]

    class DeviceGuard(_DummyDeviceGuard):
        """Survives an exception in a backward.

        If a node or a hook raises in Python, the exception is still pending while the engine's stream guard ends, and
        the guard asks for this type in a destructor. Python cannot be called with a pending exception: the call would
        end the process.
        """

        def type_(self) -> Any:
            try:
                _raise_pending()
            except BaseException as error:
                lost.append(error)
            return super().type_()  # type: ignore[no-untyped-call]

    _setup_privateuseone_for_python_backend(rename=name, backend_module=Backend(), device_guard=DeviceGuard())


_raise_pending = ctypes.pythonapi.PyErr_Occurred
"""Raises the exception that is pending in this thread: a function of `pythonapi` does so when it returns."""


# Tensors and graphs


def version_of(tensor: Tensor) -> int:
    """The number of in-place changes of the tensor; -1 for an inference tensor, which has no counter."""
    return -1 if tensor.is_inference() else tensor._version


def unchanged_versions(tensors: Tensor | tuple[Tensor, ...]) -> contextlib.AbstractContextManager[Any]:
    """A block in which in-place changes are not counted. If torch does not support this, they are counted."""
    preserve = getattr(torch.autograd.grad_mode, "_unsafe_preserve_version_counter", None)
    return contextlib.nullcontext() if preserve is None else preserve(tensors)


def batches_read(iterator: Any) -> int:
    """How many batches an iterator of a DataLoader has given; 0 if it is not known."""
    return int(getattr(iterator, "_num_yielded", 0))


def index_sampler_of(iterator: Any) -> Any:
    """What gives the indices to an iterator of a DataLoader: its batch sampler or its sampler; None if not known."""
    return getattr(iterator, "_index_sampler", None)


def base_of(tensor: Tensor) -> Tensor:
    """The tensor that this one is a view of, or itself."""
    base: Tensor | None = getattr(tensor, "_base", None)
    return tensor if base is None else base


def parts_of_sparse(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The indices and the values that a sparse COO tensor stores. If torch does not show them, those of a sum."""
    if hasattr(tensor, "_indices") and hasattr(tensor, "_values"):
        return tensor._indices(), tensor._values()
    summed = tensor.coalesce()
    return summed.indices(), summed.values()


def sequence_number(node: Node) -> int:
    """The sequence number that autograd assigned to a node. It is unique within a thread."""
    return int(node._sequence_nr())


def function_of(node: Node) -> Any:
    """The `torch.autograd.Function` whose backward is this node. None for PyTorch's own nodes."""
    return getattr(node, "_forward_cls", None)


def rounding_mode_of(node: Node) -> str | None:
    """The `rounding_mode` of the division that made a node; None for any other division, and if it is not known."""
    return getattr(node, "_saved_rounding_mode", None)


def divisor_of(node: Any) -> float | None:
    """The number by which a node divides; None for other nodes, for a divisor on a device, and if it is not known."""
    return None if rounding_mode_of(node) else _operand_of(node, "Div")


def factor_of(node: Any) -> float | None:
    """The number other than 0 by which a node multiplies; None as for `divisor_of`."""
    divisor = divisor_of(node)
    return 1 / divisor if divisor else _operand_of(node, "Mul") or None


def _operand_of(node: Any, kind: str) -> float | None:
    number = getattr(node, "_saved_other", None)
    if not isinstance(number, Tensor | int | float) or not node.name().startswith(f"{kind}Backward"):
        return None
    if not isinstance(number, Tensor):
        return float(number)
    known = number.numel() == 1 and number.device.type == "cpu" and not number.requires_grad
    return float(number) if known and not number.is_complex() else None


def is_mean_reduction(node: Node) -> bool:
    """Whether a loss with `reduction="mean"` made the node; False for other operations, and if it is not known."""
    return getattr(node, "_saved_reduction", None) == 1  # ATen's number of "mean"


def schema_of(operation: Any) -> Any:
    """The schema of an operation that a TorchDispatchMode receives: its arguments, and whether it changes one."""
    return operation._schema


def norms(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The L2 norm of each tensor, on its device. Uses few kernels if torch supports this."""
    if not tensors:
        return []
    together = getattr(torch, "_foreach_norm", None)
    if together is None:
        return [torch.linalg.vector_norm(tensor) for tensor in tensors]
    return list(together(list(tensors)))


# Modules


def parameters_of(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """The module's own parameters by name, as the dictionary that the module reads."""
    return module._parameters


def buffers_of(module: nn.Module) -> dict[str, Tensor | None]:
    """The module's own buffers by name, as the dictionary that the module reads."""
    return module._buffers


def unsaved_buffers_of(module: nn.Module) -> dict[str, Tensor | None]:
    """The module's own buffers that `state_dict` leaves out (`persistent=False`)."""
    unsaved: Iterable[str] = getattr(module, "_non_persistent_buffers_set", ())
    return {name: module._buffers[name] for name in unsaved}


HOOKS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_backward_hooks": "backward hook",
    "_post_accumulate_grad_hooks": "post-accumulate hook",
}
"""The attributes in which modules and tensors store their hooks, and what these are called."""


def hooks_on(owner: nn.Module | Tensor, attribute: str) -> list[Callable[..., Any]]:
    """The hooks in one of `HOOKS`; none where a module or tensor has no such attribute."""
    return list((getattr(owner, attribute, None) or {}).values())


def is_initialised(module: nn.Module) -> bool:
    """Whether `nn.Module.__init__` has run. Among all objects of the process some may be incomplete."""
    return "_modules" in vars(module)


def inside_compiled(module: nn.Module) -> nn.Module | None:
    """The module inside the wrapper of `torch.compile`; None for any other module."""
    inner = getattr(module, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else None


def inside_fsdp(wrapper: nn.Module) -> nn.Module:
    """The module inside FullyShardedDataParallel. Its public `module` also leaves out wrappers of checkpointing."""
    inner = getattr(wrapper, "_fsdp_wrapped_module", None)
    return inner if isinstance(inner, nn.Module) else wrapper.get_submodule("module")


def keywords_of_call(module: nn.Module) -> dict[str, Any]:
    """The keyword arguments of the call of `module` that runs a global forward pre-hook, which does not receive them.

    PyTorch keeps them in a local variable of the function that runs the hook. Without it: no keyword arguments.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == nn.modules.module.__file__ and frame.f_locals.get("self") is module:
            return dict(frame.f_locals.get("kwargs", {}))
        frame = frame.f_back  # type: ignore[assignment]
    return {}


# Processes


def default_store() -> Any | None:
    """The key-value store of the default process group; None if torch does not show it."""
    get = getattr(torch.distributed.distributed_c10d, "_get_default_store", None)
    return None if get is None else get()


def communication_hooks(wrapper: nn.Module) -> Sequence[Any]:
    """What replaces the averaging of DistributedDataParallel; empty without it, and if it is not known."""
    return tuple(getattr(wrapper, "_comm_hooks", ()))


# Loops


def is_initial_step(scheduler: LRScheduler) -> bool:
    """Whether the step that just ended was the one in the scheduler's constructor. torch 2.6 has only a step count."""
    initial = getattr(scheduler, "_is_initial", None)
    return bool(getattr(scheduler, "_step_count", 2) <= 1) if initial is None else bool(initial)


def has_stepped(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer with a scheduler has stepped."""
    return bool(getattr(optimizer, "_opt_called", False))


CLIPS_EVERY_NORM = "_clip_grads_with_norm_"
"""In `torch.nn.utils.clip_grad`: the function that `clip_grad_norm_` calls, even if that was imported by name."""


def end_workers(loader: Any) -> None:
    """Stop a DataLoader's persistent workers, so that its next iterator starts new ones."""
    if hasattr(loader, "_iterator"):
        loader._iterator = None


def has_running_workers(loader: Any) -> bool:
    """Whether a DataLoader's persistent workers are running."""
    return getattr(loader, "_iterator", None) is not None
