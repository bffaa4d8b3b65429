"""The modules that make several processes train one model, and passes of such a model in one process alone."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from debugkit._torch_private import inside_fsdp, is_initialised


def is_distributed() -> bool:
    """Whether this process has joined a process group."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def wrapper_types() -> tuple[type[nn.Module], ...]:
    """DistributedDataParallel, and FullyShardedDataParallel if the program has imported it."""
    fsdp = getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", None)
    return (DistributedDataParallel,) if fsdp is None else (DistributedDataParallel, fsdp)


def wrapped_module(wrapper: nn.Module) -> nn.Module:
    """The module inside, which computes the same without communication."""
    return wrapper.module if isinstance(wrapper, DistributedDataParallel) else inside_fsdp(wrapper)


def callable_alone(model: nn.Module) -> nn.Module | None:
    """What one rank can call without the others: the module in DistributedDataParallel, or `model` without a wrapper.

    None if parts of it are on other ranks (FullyShardedDataParallel, DTensor), or if a wrapper is inside.
    """
    inner = wrapped_module(model) if isinstance(model, DistributedDataParallel) else model
    is_wrapped = any(isinstance(part, wrapper_types()) for part in inner.modules())
    is_shared = any(hasattr(parameter, "device_mesh") for parameter in inner.parameters())
    return None if is_wrapped or is_shared else inner


def wrappers_of(model: nn.Module) -> list[nn.Module]:
    """The outermost wrappers in `model`, or around it or around parts of it."""
    kinds = wrapper_types()
    found = [module for module in model.modules() if isinstance(module, kinds)]
    if not found and is_distributed():
        parts = set(map(id, model.modules()))
        # By type() and not isinstance(): reading `__class__` of a lazy proxy can make it load something.
        alive = [each for each in gc.get_objects() if issubclass(type(each), kinds)]
        found = [each for each in alive if is_initialised(each) and id(wrapped_module(each)) in parts]
    inside = {id(part) for wrapper in found for part in wrapper.modules() if part is not wrapper}
    return [wrapper for wrapper in found if id(wrapper) not in inside]


@contextlib.contextmanager
def without_communication(model: nn.Module) -> Iterator[None]:
    """Disable all communication of DDP, so that one rank can run passes alone and without a lasting effect on DDP."""
    with contextlib.ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, DistributedDataParallel):
                stack.enter_context(module.no_sync())
                # Otherwise DDP would broadcast its buffers, and count the first backward of a static graph.
                for name in ("require_forward_param_sync", "static_graph"):
                    stack.callback(setattr, module, name, getattr(module, name))
                    setattr(module, name, False)
        yield
