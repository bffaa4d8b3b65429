"""Measurements of the learner's policy for the grader and `lab run`. Runs next to the learner's code, sandboxed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from labs.adapted_policy import Peak, step
from labs.vla.dataset import Batch, batches, demonstrations
from labs.vla.policy import Policy, PolicyConfig
from labs.vla.randomness import private_randomness
from labs.vla.rollout import rollout
from labs.vla.training import fit

BATCH_SIZE = 32
TRAINING_STEPS = 120
LEARNING_RATE = 3e-3


def adapted(learner: Any, sizes: dict[str, int], rank: int | None, recompute: bool, seed: int) -> dict[str, Any]:
    """A random policy of these sizes after `adapt`: its parameters, the names of those that train, and what it changed.

    `before` are the parameters before `adapt`. `random_state_kept` says whether the caller's random state is the same.
    """
    policy = _policy(sizes, seed)
    before, state = _values(policy), torch.get_rng_state()
    learner.policy.adapt(policy, seed, **({} if rank is None else {"rank": rank}), recompute=recompute)
    return {
        "before": before,
        "parameters": _values(policy),
        "trained": [name for name, parameter in policy.named_parameters() if parameter.requires_grad],
        "random_state_kept": torch.equal(state, torch.get_rng_state()),
    }


def built(learner: Any, seed: int, batch: Batch, **asked: Any) -> dict[str, Any]:
    """Parameters of `build_policy(seed, …)`, those that train, and the runs of each layer in a step."""
    policy = learner.policy.build_policy(seed, **asked)
    found = {"parameters": _values(policy), "trained": [n for n, p in policy.named_parameters() if p.requires_grad]}
    with _Runs(policy.train()) as runs:
        policy(**batch).loss.backward()
    return {**found, "runs": runs.seen}


def stepped(
    learner: Any,
    given: list[Batch],
    sizes: dict[str, int],
    rank: int,
    parameters: dict[str, Tensor],
    recompute: bool,
    training: bool,
) -> dict[str, Any]:
    """One step of an adapted policy with these parameters: forward and backward for each batch of `given`.

    The gradients are the sums over all batches. `runs` counts how often each transformer layer was run, `peak` is the
    largest number of bytes alive beyond the policy and the batches, and `batches` are the batches afterwards.
    """
    policy = _policy(sizes, 0).eval()
    learner.policy.adapt(policy, 0, rank=rank, **({} if recompute else {"recompute": False}))
    policy.load_state_dict(parameters)
    policy.train(training)
    before = {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}
    with _Runs(policy) as runs:
        seen = step(policy, given)
    return {
        **seen,
        "runs": runs.seen,
        "batches": [{name: value.detach() for name, value in batch.items()} for batch in given],
        "marked": sorted({name for batch in given for name, value in batch.items() if value.requires_grad}),
        "changed": [name for name, value in policy.named_parameters() if not torch.equal(value, before[name])],
    }


def acted(
    learner: Any, batch: Batch, sizes: dict[str, int], rank: int, parameters: dict[str, Tensor]
) -> dict[str, Any]:
    """What `predict` of an adapted policy with these parameters returns, and how often each transformer layer ran."""
    policy = _policy(sizes, 0)
    learner.policy.adapt(policy, 0, rank=rank)
    policy.load_state_dict(parameters)
    with _Runs(policy.eval()) as runs:
        chunk = policy.predict(batch)
    return {"chunk": chunk, "runs": runs.seen}


def saved(learner: Any, batch: Batch, seed: int) -> dict[str, Any]:
    """What `adapters` returns before a training step, after it, and what the parameters are after it."""
    policy = learner.policy.build_policy(seed)
    before = learner.policy.adapters(policy)
    optimizer = torch.optim.SGD([p for p in policy.parameters() if p.requires_grad], lr=0.1)
    policy.train()
    policy(**batch).loss.backward()
    optimizer.step()
    after = learner.policy.adapters(policy)
    return {
        "before": dict(before),
        "after": dict(after),
        "parameters": _values(policy),
        "requires_grad": [name for name, value in after.items() if value.requires_grad],
    }


def action(learner: Any, batch: Batch, seed: int) -> Tensor:
    """The chunk that a newly built policy predicts in evaluation mode, (B, H, 3)."""
    return learner.policy.build_policy(seed).eval().predict(batch)


def trained_rollout(learner: Any, seed: int, episodes: int) -> dict[str, Any]:
    """Fine-tune from the base, and run closed-loop episodes: their success, and the parameters before and after."""
    policy = learner.policy.build_policy(seed)
    before = _values(policy)
    _fit(policy, seed)
    result = rollout(policy, episodes=episodes, first_seed=500_000 + seed)
    return {"success": torch.from_numpy(result.success), "before": before, "after": _values(policy)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a newly built policy, a batch of demonstrations, and an optimizer."""
    policy = learner.policy.build_policy(0)
    optimizer = torch.optim.AdamW([p for p in policy.parameters() if p.requires_grad], lr=LEARNING_RATE)
    return {"model": policy, "batch": _batch(), "optimizer": optimizer}


def symptom(learner: Any) -> None:
    """Measures a step's memory, trains the policy and runs it: what `lab run 15` shows."""
    policy = learner.policy.build_policy(15)
    trained = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    everything = sum(parameter.numel() for parameter in policy.parameters())
    print(f"{sum(parameter.numel() for parameter in trained):,} of {everything:,} numbers require a gradient\n")
    print(f"memory of one step of {BATCH_SIZE} frames, beyond the weights")
    for name, recompute in (("all activations kept", False), ("activations recomputed", True)):
        print(f"  {name:24} {_peak(learner, recompute) / 1e6:6.1f} MB")
    print(f"\nFine-tuning, {TRAINING_STEPS} steps\n\n  step    loss")

    def report(step: int, loss: float) -> None:
        if step % 40 == 0 or step == TRAINING_STEPS - 1:
            print(f"  {step:4d}  {loss:6.3f}", flush=True)

    _fit(policy, 15, report)
    result = rollout(policy, episodes=50)
    print(f"\n50 episodes: {result.success_rate:.0%} success, {result.never_closed_rate:.0%} never closed the gripper")


def _fit(policy: Policy, seed: int, on_step: Callable[[int, float], None] | None = None) -> None:
    frames = demonstrations(TRAINING_STEPS * BATCH_SIZE, seed)
    settings = {"steps": TRAINING_STEPS, "seed": seed, "batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE}
    fit(policy, frames, **settings, on_step=on_step)


def _peak(learner: Any, recompute: bool) -> int:
    policy, batch = learner.policy.build_policy(0, recompute=recompute).train(), _batch()
    with Peak(policy, [batch]) as memory:
        policy(**batch).loss.backward()
    return memory.most


def _batch() -> Batch:
    return next(batches(demonstrations(BATCH_SIZE, seed=15), BATCH_SIZE, steps=1, seed=15))


def _policy(sizes: dict[str, int], seed: int) -> Policy:
    with private_randomness(seed):
        return Policy(PolicyConfig(**sizes))


def _values(policy: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in policy.named_parameters()}


class _Runs:
    """Counts how often the attention of each transformer layer is entered, by the layer's name."""

    def __init__(self, policy: nn.Module) -> None:
        self.attentions = {name: module for name, module in policy.named_modules() if name.endswith(".self_attn")}
        self.seen = Counter(dict.fromkeys((name.removesuffix(".self_attn") for name in self.attentions), 0))

    def __enter__(self) -> _Runs:
        self._handles = [
            module.register_forward_pre_hook(self._counting(name.removesuffix(".self_attn")))
            for name, module in self.attentions.items()
        ]
        return self

    def _counting(self, layer: str) -> Callable[..., None]:
        def count(*_: Any) -> None:
            self.seen[layer] += 1

        return count

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()
