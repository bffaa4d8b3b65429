"""The update that SGD, Adam or AdamW would make to a float32 weight, from its gradient and the optimizer state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

_ADAM_STATE = {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}


def expected_update(
    optimizer: Optimizer,
    parameter: Tensor,
    group: Mapping[str, Any],
    gradient: Tensor,
    some: Callable[[Tensor], Tensor],
) -> Tensor | None:
    """The float32 update, without weight decay, of the elements that `some` selects, just after `step()`.

    `gradient` holds the gradient of those elements. For SGD with momentum it is the update that a constant gradient
    converges to. None for any other optimizer: one that keeps a float32 copy, compensates for rounding errors or rounds
    stochastically may correctly leave a 16-bit weight unchanged.
    """
    state = optimizer.state.get(parameter, {})
    if type(optimizer) is SGD and set(state) <= {"momentum_buffer"} and group["momentum"] < 1:
        lasting: Tensor = -group["lr"] / (1.0 - group["momentum"]) * gradient.float()
        return lasting
    if type(optimizer) in (Adam, AdamW) and set(state) <= _ADAM_STATE and "exp_avg" in state:
        return _adam(group, state, some)
    return None


def _adam(group: Mapping[str, Any], state: Mapping[str, Any], some: Callable[[Tensor], Tensor]) -> Tensor:
    first, second = group["betas"]
    second_moment = some(state.get("max_exp_avg_sq", state["exp_avg_sq"])).float()
    step = state["step"].to(second_moment.device) if isinstance(state["step"], Tensor) else state["step"]
    root = (second_moment / (1 - second**step)).sqrt() + group["eps"]
    update: Tensor = -group["lr"] / (1 - first**step) * some(state["exp_avg"]).float() / root
    return update
