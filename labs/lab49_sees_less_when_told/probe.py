"""Measures the learner's policy for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from debugkit import Declare
from labs.vla.dataset import Batch, batches, demonstrations
from labs.vla.policy import BASE_CHECKPOINT, Policy, PolicyConfig
from labs.vla.rollout import rollout
from labs.vla.training import fit

BATCH_SIZE = 64
TRAINING_STEPS = 150


def loaded(learner: Any, saved: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """Build a policy from a checkpoint of these tensors: what it holds then, and the error, if there was one."""
    with _checkpoint(saved) as path:
        try:
            policy = learner.policy.build_policy(seed, path)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}", "holds": {}}
    return {"error": None, "holds": _weights(policy)}


def loaded_with_head(learner: Any, saved: dict[str, Tensor], seed: int) -> dict[str, Any]:
    """The same for a checkpoint that has a head as well."""
    return loaded(learner, saved, seed)


def loaded_again(learner: Any, saved: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """What a policy built from the base holds after `load_checkpoint` has read another checkpoint into it."""
    policy = learner.policy.build_policy(seed)
    with _checkpoint(saved) as path:
        learner.policy.load_checkpoint(policy, path)
    return _weights(policy)


def built(learner: Any, seed: int) -> dict[str, Any]:
    """The weights of two policies of one seed, and whether the caller's random state is the same as before."""
    before = torch.get_rng_state()
    first = _weights(learner.policy.build_policy(seed))
    kept = torch.equal(before, torch.get_rng_state())
    return {"first": first, "second": _weights(learner.policy.build_policy(seed)), "kept_random_state": kept}


def action(learner: Any, batch: Batch, seed: int, saved: dict[str, Tensor] | None = None) -> Tensor:
    """The chunk (B, H, 3) of a fresh policy, from the base or from a checkpoint of these tensors."""
    return _from(learner, saved, seed).eval().predict(batch)


def one_pass(
    learner: Any, batch: Batch, film: dict[str, Tensor], seed: int, saved: dict[str, Tensor] | None = None
) -> dict[str, Any]:
    """With these weights of FiLM: the loss, the gradients by name, the chunk, and the scores of the words.

    `answer_gradient` is that of the scores' mean square for the word embeddings.

    `film` has `scale.weight`, `scale.bias`, `shift.weight` and `shift.bias`.
    """
    policy = _from(learner, saved, seed)
    with torch.no_grad():
        for name, value in film.items():
            policy.vision.get_parameter(name).copy_(value)
    loss = policy(**batch).loss
    loss.backward()
    gradients = {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}
    policy.eval()
    answer, words = policy.answer(batch), policy.language_model.embed_tokens.weight
    trains = answer.requires_grad
    return {
        "loss": loss.detach(),
        "gradients": gradients,
        "action": policy.predict(batch),
        "answer": answer.detach(),
        "answer_gradient": torch.autograd.grad(answer.square().mean(), words)[0] if trains else torch.zeros_like(words),
    }


def of_another_width(learner: Any, batch: Batch, vision_width: int) -> Tensor:
    """The chunk (B, H, 3) of a policy without a checkpoint, whose vision tower has another width."""
    config = replace(PolicyConfig.tiny(), vision_width=vision_width)
    return learner.policy.InstructedPolicy(config).eval().predict(batch)


def shared(learner: Any, saved: dict[str, Tensor], added: Tensor, seed: int) -> dict[str, Tensor]:
    """The word embeddings and the word head's weight, after `added` was added to the embeddings alone."""
    policy = _from(learner, saved, seed)
    with torch.no_grad():
        policy.language_model.embed_tokens.weight.add_(added)
    return {
        "embeddings": policy.language_model.embed_tokens.weight.detach(),
        "word_head": policy.word_head.weight.detach(),
    }


def trained_rollout(learner: Any, seed: int, episodes: int) -> dict[str, Tensor]:
    """Fine-tune from the base and run closed-loop episodes."""
    policy = learner.policy.build_policy(seed)
    _train(policy, seed)
    result = rollout(policy, episodes=episodes, first_seed=500_000 + seed)
    return {name: torch.from_numpy(getattr(result, name)) for name in ("success", "wrong_block", "distance")}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a fresh policy, a batch of demonstrations, and what the policy was to hold."""
    policy = learner.policy.build_policy(0)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    fresh = tuple(f"{begin}*" for begin in learner.policy.NEW)
    return {
        "model": policy,
        "batch": next(batches(demonstrations(64, seed=49), 32, steps=1, seed=49)),
        "optimizer": optimizer,
        "declare": Declare(checkpoint=str(BASE_CHECKPOINT), fresh=fresh, pretrained=True),
    }


def symptom(learner: Any) -> None:
    """Trains the policy without FiLM and with it: the output of `lab run 49`."""
    policies = {"without FiLM": Policy.from_base(seed=49), "with FiLM": learner.policy.build_policy(49)}
    print(f"Fine-tuning two policies from the same checkpoint, {TRAINING_STEPS} steps\n")
    print("                 loss at step             50 episodes")
    print(f"                    0     50    100    {TRAINING_STEPS - 1}  success   distance to the block")
    for name, policy in policies.items():
        losses = _train(policy, 49)
        shown = "  ".join(f"{losses[step]:5.3f}" for step in (0, 50, 100, TRAINING_STEPS - 1))
        result = rollout(policy, episodes=50)
        print(f"  {name:14} {shown} {result.success_rate:8.0%} {100 * result.final_distance:10.1f} cm", flush=True)


def _train(policy: Any, seed: int) -> list[float]:
    frames = demonstrations(TRAINING_STEPS * BATCH_SIZE, seed)
    return fit(policy, frames, steps=TRAINING_STEPS, seed=seed, batch_size=BATCH_SIZE)


def _from(learner: Any, saved: dict[str, Tensor] | None, seed: int) -> Any:
    if saved is None:
        return learner.policy.build_policy(seed)
    with _checkpoint(saved) as path:
        return learner.policy.build_policy(seed, path)


@contextmanager
def _checkpoint(saved: Mapping[str, Tensor]) -> Iterator[Path]:
    """A file of these tensors, named like the base, which is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / BASE_CHECKPOINT.name
        save_file({name: tensor.contiguous() for name, tensor in saved.items()}, path)
        yield path


def _weights(policy: Any) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in policy.state_dict().items()}
