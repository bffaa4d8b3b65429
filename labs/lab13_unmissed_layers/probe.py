"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from labs.vla.dataset import batches, demonstrations
from labs.vla.policy import OBSERVATION_KEYS
from labs.vla.rollout import rollout
from labs.vla.training import fit, overfit

BATCH_SIZE = 32
TRAINING_STEPS = 150


def built(learner: Any, seed: int, **layers: int) -> dict[str, Tensor]:
    """Every parameter of `build_policy(seed)`, or of `build_policy(seed, layers)`."""
    return _values(learner.policy.build_policy(seed, **layers))


def configured(learner: Any, sizes: dict[str, int]) -> dict[str, Any]:
    """The parameters of a policy whose configuration has these sizes, its number of layers, and the head's horizon."""
    policy = _policy(learner, sizes)
    return {
        "parameters": _values(policy),
        "layers": len(policy.head.decoder.layers),
        "horizon": policy.head.horizon,
    }


def acted(
    learner: Any, batch: dict[str, Tensor], sizes: dict[str, int], parameters: dict[str, Tensor], training: bool
) -> dict[str, Any]:
    """The chunk (B, H, A) that a policy with these parameters predicts, and what its decoder returned for it."""
    policy = _policy(learner, sizes, parameters).train(training)
    states: list[Any] = []
    handle = policy.head.decoder.register_forward_hook(lambda _, __, out: states.append(out))
    with torch.no_grad():
        chunk = policy(**{name: batch[name] for name in OBSERVATION_KEYS}).action
    handle.remove()
    return {"chunk": chunk, "states": states[-1] if states else None}


def differentiated(
    learner: Any, batch: dict[str, Tensor], sizes: dict[str, int], parameters: dict[str, Tensor], training: bool
) -> dict[str, Any]:
    """The training loss of a policy with these parameters, and each gradient that is not None by its name."""
    policy = _policy(learner, sizes, parameters).train(training)
    loss = policy(**batch).loss
    loss.backward()
    gradients = {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}
    return {"loss": loss.detach(), "gradients": gradients}


def action(learner: Any, batch: dict[str, Tensor], seed: int) -> Tensor:
    """The chunk that a fresh policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def overfitted(learner: Any, seed: int, steps: int) -> dict[str, Any]:
    """Train on one batch of demonstrations: the losses (steps,), and each layer's matrices before and after."""
    policy = learner.policy.build_policy(seed)
    layers = policy.head.decoder.layers
    before = [_matrices(layer) for layer in layers]
    batch = next(batches(demonstrations(BATCH_SIZE, seed), BATCH_SIZE, steps=1, seed=seed))
    losses = overfit(policy, batch, steps, seed=seed)
    return {"losses": torch.tensor(losses), "before": before, "after": [_matrices(layer) for layer in layers]}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy and a batch of demonstrations."""
    policy = learner.policy.build_policy(0)
    batch = next(batches(demonstrations(BATCH_SIZE, seed=13), BATCH_SIZE, steps=1, seed=13))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    return {"model": policy, "batch": batch, "optimizer": optimizer}


def symptom(learner: Any) -> None:
    """Trains the policy, lets it act, and removes decoder layers: what `lab run 13` shows."""
    policy = learner.policy.build_policy(13)
    print(f"Training a policy with a decoder of 4 layers, {TRAINING_STEPS} steps\n\n  step    loss")

    def report(step: int, loss: float) -> None:
        if step % 50 == 0 or step == TRAINING_STEPS - 1:
            print(f"  {step:4d}  {loss:6.3f}", flush=True)

    frames = demonstrations(TRAINING_STEPS * BATCH_SIZE, 13)
    fit(policy, frames, steps=TRAINING_STEPS, seed=13, batch_size=BATCH_SIZE, on_step=report)
    result = rollout(policy, episodes=50)
    print(
        f"\n50 episodes: {result.success_rate:.0%} success, {result.never_closed_rate:.0%} never closed the gripper\n"
    )
    print("What does each layer contribute? Upper layers removed, 256 held-out frames:")
    print("  layers   actions that changed   by at most")
    batch = next(batches(demonstrations(256, seed=4), 256, steps=1, seed=4))
    whole, decoder = policy.predict(batch), policy.head.decoder
    every = list(decoder.layers)
    for kept in range(len(every), 0, -1):
        decoder.layers = nn.ModuleList(every[:kept])
        shift = (policy.predict(batch) - whole)[..., :2].abs()
        changed = float((shift.amax(dim=-1) > 0).double().mean())
        print(f"  {kept:>6}   {changed:>20.0%}   {1000 * float(shift.max()):>7.1f} mm")
    decoder.layers = nn.ModuleList(every)


def _matrices(layer: nn.Module) -> Tensor:
    """All matrices of a layer, flattened into one vector."""
    return torch.cat([weight.detach().flatten() for weight in layer.parameters() if weight.ndim > 1])


def _policy(learner: Any, sizes: dict[str, int], parameters: dict[str, Tensor] | None = None) -> Any:
    """A policy of these sizes; with `parameters`, their values where the names agree."""
    policy = learner.policy.DecoderPolicy(learner.policy.DecoderConfig(**sizes))
    if parameters is not None:
        policy.load_state_dict(parameters, strict=False)
    return policy


def _values(policy: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in policy.named_parameters()}


def decoded(
    learner: Any,
    memory: Tensor,
    weights: Tensor,
    sizes: dict[str, int],
    parameters: dict[str, Tensor],
    training: bool,
) -> dict[str, Any]:
    """The gradients of a loss on every state that the decoder returns for memory (B, M, D), by parameter.

    The loss is the sum of the states times `weights` (L, B, H, D). A decoder that returns the last state alone gets
    the last of the weights.
    """
    policy = _policy(learner, sizes, parameters).train(training)
    states = policy.head.decoder(memory.requires_grad_())
    (states * (weights[-1] if states.dim() == 3 else weights)).sum().backward()
    gradients = {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}
    if memory.grad is not None:
        gradients["memory"] = memory.grad
    return {"alone": states.dim() == 3, "gradients": gradients}
