"""Let the declared controller execute plans that agree: the same action in every step of every plan."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from debugkit.finding import NotExamined, SourceLine
from debugkit.frames import one_line
from debugkit.interventions.batch_roles import PAD_NAMES, target
from debugkit.interventions.program_lines import own_definition
from debugkit.randomness import same_randomness
from debugkit.rules.dk409_plans_not_followed import ExecutedDimension, ExecutedPlans
from debugkit.setup import TrainingSetup

_FEWEST_STEPS = 64
_SMALLEST = 1e-6


def follow_agreeing_plans(setup: TrainingSetup) -> ExecutedPlans:
    """Build the controller with a `predict` that always returns one plan, and call it step by step."""
    controller = setup.declare.controller
    if controller is None:
        raise NotExamined("No controller was declared: Declare(controller=…).")
    path, action, horizon = _action(setup)
    steps = max(2 * horizon, _FEWEST_STEPS)

    def predict(_batch: Any = None, *_others: Any, **_named: Any) -> Tensor:
        return action[:, None].expand(-1, horizon, -1).clone()

    try:
        with torch.no_grad(), same_randomness(0):
            act = controller(predict)
            executed: list[Tensor] = []
            while len(executed) < steps:
                executed.extend(_steps(act(setup.fresh_batch()), action.shape))
    except NotExamined:
        raise
    except Exception as error:
        raise NotExamined(f"The controller raised {one_line(error)}.") from error
    actions = torch.stack(executed[:steps]).double()  # (T, B, A)
    dimensions = tuple(_dimensions(action.double().cpu(), actions))
    return ExecutedPlans(path, horizon, steps, dimensions, _line(act, controller))


def _action(setup: TrainingSetup) -> tuple[str, Tensor, int]:
    """The target's path, the first action (B, A) of each sample, 0 where it is padding, and the steps of a plan."""
    found = target(setup)
    if found is None or found[1].ndim != 3 or not found[1].is_floating_point() or not found[1].numel():
        raise NotExamined("The batch has no target action (B, H, A), which the controller could be given as a plan.")
    path, actions = found
    first = actions[:, 0].detach().clone()
    batch = setup.batch if hasattr(setup.batch, "get") else {}
    pad = next((batch.get(name) for name in PAD_NAMES if batch.get(name) is not None), None)
    if isinstance(pad, Tensor) and pad.shape == actions.shape[:2]:
        first = first.masked_fill(pad[:, 0, None].bool(), 0)
    if not bool(first.isfinite().all()) or not bool((first.abs() > _SMALLEST).any()):
        raise NotExamined(f"The first actions of `{path}` are all 0 or not finite, so they are no plan to follow.")
    return path, first, actions.shape[1]


def _steps(returned: Any, shape: torch.Size) -> list[Tensor]:
    """The actions (B, A) of each step that a controller returned at once."""
    actions = torch.as_tensor(returned).detach().cpu()
    if actions.shape == shape:
        return [actions]
    if actions.ndim == 3 and (actions.shape[0], actions.shape[2]) == tuple(shape) and actions.shape[1]:
        return list(actions.unbind(1))
    raise NotExamined(
        f"The controller returned the shape {tuple(actions.shape)} for plans of {tuple(shape)} actions: "
        "(B, A) or (B, k, A) is needed."
    )


def _dimensions(plan: Tensor, executed: Tensor) -> list[ExecutedDimension]:
    found = []
    settled = executed[3 * len(executed) // 4 :]
    for dimension in range(plan.shape[1]):
        wanted, first, last = plan[:, dimension], executed[0, :, dimension], executed[-1, :, dimension]
        size = float(wanted.norm())
        if size <= _SMALLEST or not bool(executed[..., dimension].isfinite().all()):
            continue
        moved = float((settled[..., dimension] - last).norm(dim=1).max())
        found.append(
            ExecutedDimension(
                dimension=dimension,
                gain=float(last @ wanted) / size**2,
                first_off=float((first - wanted).norm()) / size,
                last_off=float((last - wanted).norm()) / size,
                last_size=float(last.norm()) / size,
                still_moves=moved / max(float(last.norm()), _SMALLEST * size),
            )
        )
    return found


def _line(act: Any, controller: Any) -> SourceLine | None:
    """Where the function that acts begins, or the one that makes it."""
    methods = (getattr(type(act), name, None) for name in ("__call__", "forward"))
    return next((line for each in (act, *methods, controller) if (line := own_definition(each)) is not None), None)
