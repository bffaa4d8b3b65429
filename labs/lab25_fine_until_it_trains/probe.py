"""Measures the learner's policy for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

import contextlib
import copy
import io
from itertools import zip_longest
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import debugkit
from labs.vla.dataset import batches, demonstrations
from labs.vla.training import fit

BATCH_SIZE = 32
OUTCOME_BATCH_SIZE = 16
SHOWN_FRAMES = 4
COLUMN = 46
_PRODUCTS = (F.linear, F.conv2d, torch.conv2d, torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)
_PRODUCTS += (torch.mm, torch.Tensor.mm, torch.addmm, torch.bmm, torch.Tensor.bmm, torch.einsum)


def evaluated(
    learner: Any, batch: dict[str, Tensor], feature: Tensor, weights: dict[str, Tensor], half: bool, seed: int
) -> Tensor:
    """The head's input (B, D) in evaluation mode, under float16 autocast if `half`.

    The language model returns `feature` (B, D), and the expert has `weights`.
    """
    policy = _with_weights(learner, seed, weights).eval()
    with torch.no_grad(), _half(half):
        return _through_the_expert(policy, batch, feature).float()


def trained_on(
    learner: Any,
    batch: dict[str, Tensor],
    feature: Tensor,
    weights: dict[str, Tensor],
    cotangent: Tensor,
    half: bool,
    seed: int,
) -> dict[str, Any]:
    """The head's input (B, D) in training mode, and the gradients of its scalar product with `cotangent` (B, D)."""
    policy = _with_weights(learner, seed, weights).train()
    feature = feature.clone().requires_grad_()
    with _half(half):
        output = _through_the_expert(policy, batch, feature)
    gradients = torch.autograd.grad(
        (output.float() * cotangent).sum(), [feature, *policy.expert.parameters()], allow_unused=True
    )
    names = ["feature", *(name for name, _ in policy.expert.named_parameters())]
    return {"output": output.detach().float(), "gradients": dict(zip(names, gradients, strict=True))}


def training_step(learner: Any, batch: dict[str, Tensor], weights: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """The loss of one training pass under float16 autocast, and each gradient's norm, or None."""
    policy = _with_weights(learner, seed, weights).train()
    loss = _half_loss(policy, batch)
    loss.backward()
    norms = {name: None if one.grad is None else float(one.grad.norm()) for name, one in policy.named_parameters()}
    return {"loss": loss.detach(), "gradients": norms}


def predicted(learner: Any, batch: dict[str, Tensor], half: bool, seed: int) -> Tensor:
    """The chunk (B, H, 3) that a fresh policy predicts in evaluation mode."""
    policy = learner.policy.build_policy(seed).eval()
    with _half(half):
        chunk: Tensor = policy.predict(batch)
    return chunk.float()


def dtypes(learner: Any, batch: dict[str, Tensor], training: bool, seed: int) -> dict[str, str]:
    """The output dtype of every linear layer and convolution of the policy under float16 autocast."""
    policy = learner.policy.build_policy(seed).train(training)
    seen: dict[str, str] = {}
    for name, module in policy.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            module.register_forward_hook(
                lambda _, __, output, name=name: seen.update({name: str(output.dtype).removeprefix("torch.")})
            )
    with torch.no_grad(), _half():
        policy(**batch)
        policy.predict(batch)
    return seen


def products(learner: Any, batch: dict[str, Tensor], seed: int, device: str) -> list[str]:
    """The dtype in which each matrix product and convolution of a prediction runs under float16 autocast, in order.

    `device` is the type of device on which autocast is enabled and on which every tensor says that it is. Nothing is
    moved: values are computed in float32 if it is not the processor, and the dtype is that which autocast would choose.
    """
    policy, before = learner.policy.build_policy(seed).eval(), torch.is_autocast_enabled(device)
    torch.set_autocast_dtype(device, torch.float16)
    torch.set_autocast_enabled(device, True)
    try:
        with torch.no_grad(), _Products(device) as seen:
            policy.predict(batch)
    finally:
        torch.set_autocast_enabled(device, before)
        torch.clear_autocast_cache()
    return seen.dtypes


def stored(learner: Any, seed: int) -> dict[str, Tensor]:
    """What the policy that `build_policy` returns would save."""
    state: dict[str, Tensor] = learner.policy.build_policy(seed).state_dict()
    return state


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy predicts in evaluation mode, (B, H, 3)."""
    return predicted(learner, batch, False, seed)


def trained_in_half(learner: Any, seed: int, steps: int) -> list[float]:
    """Losses of training on one batch under float16 autocast."""
    policy = learner.policy.build_policy(seed)
    frames = demonstrations(OUTCOME_BATCH_SIZE, seed)
    return fit(policy, frames, steps=steps, seed=seed, batch_size=OUTCOME_BATCH_SIZE, loss_fn=_half_loss)


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy, a batch of demonstrations, and the loss under autocast."""
    policy = learner.policy.build_policy(0).train()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    return {"model": policy, "batch": _batch(25), "optimizer": optimizer, "loss_fn": _half_loss}


def symptom(learner: Any) -> None:
    """The loss in both modes and precisions, and two tools' frames before the first Inf: the output of `lab run 25`."""
    policy, batch = learner.policy.build_policy(0), _batch(25)
    print("loss            float32   float16 autocast")
    for mode in ("evaluation", "training"):
        policy.train(mode == "training")
        torch.manual_seed(0)
        with torch.no_grad():
            full, half = policy(**batch).loss, _half_loss(policy, batch)
        print(f"  {mode:<12} {full:8.4f}   {half:8.4f}")
    policy.train()
    theirs = _underflow_overflow(policy, batch)
    if not theirs:
        origin = debugkit.first_nonfinite(policy, batch, _half_loss)
        print(f"\ntransformers' DebugUnderflowOverflow reports nothing; debugkit.first_nonfinite: {origin}")
        return
    overflow = debugkit.detect_overflow(policy, batch, _half_loss, last=SHOWN_FRAMES)
    print(f"\nThe last {SHOWN_FRAMES} frames of the training pass, in float16:\n")
    ours = str(overflow).split("\nNear the limit")[0].splitlines()
    left = ["debugkit.detect_overflow", *ours[1:]]
    right = ["transformers DebugUnderflowOverflow", *theirs]
    for one, other in zip_longest(left, right, fillvalue=""):
        print(f"{one:<{COLUMN}}{other}".rstrip())


def _underflow_overflow(policy: nn.Module, batch: dict[str, Tensor]) -> list[str]:
    """The output of transformers' detector for the same pass; empty if it finds nothing."""
    from transformers.debug_utils import DebugUnderflowOverflow

    watched = copy.deepcopy(policy)  # its hooks cannot be removed
    DebugUnderflowOverflow(watched, max_frames_to_save=SHOWN_FRAMES)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            _half_loss(watched, batch)
        except ValueError:  # raised by the detector at the first Inf
            lines = printed.getvalue().splitlines()
            start = next(i for i, line in enumerate(lines) if line.startswith("abs min"))
            return [line for line in lines[start:] if line.strip()]
    return []


class _Products(TorchFunctionMode):
    """Notes the dtype of every product. Tensors say that they are on a device of this type."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.dtypes: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == torch.Tensor.device.__get__ and self.device != "cpu":
            return torch.device(self.device, 0)
        if func == torch.Tensor.is_cuda.__get__:
            return self.device == "cuda"
        if func in _PRODUCTS:
            autocast = torch.is_autocast_enabled(self.device)
            dtype = torch.get_autocast_dtype(self.device) if autocast else args[0].dtype
            self.dtypes.append(str(dtype).removeprefix("torch."))
        return func(*map(self._here, args), **{name: self._here(value) for name, value in (kwargs or {}).items()})

    def _here(self, value: Any) -> Any:
        """The processor if `value` names the device: what is created or moved stays here."""
        elsewhere = isinstance(value, str | torch.device) and str(value).partition(":")[0] == self.device
        return "cpu" if elsewhere else value


def _half(enabled: bool = True) -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.float16, enabled=enabled)


def _half_loss(policy: Any, batch: dict[str, Tensor]) -> Tensor:
    with _half():
        return policy(**batch).loss


def _batch(seed: int) -> dict[str, Tensor]:
    return next(batches(demonstrations(BATCH_SIZE, seed), BATCH_SIZE, steps=1, seed=seed))


def _through_the_expert(policy: Any, batch: dict[str, Tensor], feature: Tensor) -> Tensor:
    """The head's input, (B, D), when the language model's last hidden state is `feature`."""
    given: list[Tensor] = []
    policy.language_model.register_forward_hook(lambda _, __, output: _with_last(output, feature))
    policy.head.mlp.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    policy(**batch)
    return given[0]


def _with_last(output: Any, feature: Tensor) -> Any:
    hidden = output.last_hidden_state.to(feature.dtype, copy=True)  # (B, T, D)
    hidden[:, -1] = feature
    output.last_hidden_state = hidden
    return output


def _with_weights(learner: Any, seed: int, weights: dict[str, Tensor]) -> Any:
    policy = learner.policy.build_policy(seed)
    policy.expert.load_state_dict(weights)
    return policy
