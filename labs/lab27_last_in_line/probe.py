"""Measures the learner's policy for the grader and `lab run`; runs with the learner's code in the sandboxed child."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

import debugkit
from labs.vla.dataset import Batch, collate, demonstrations
from labs.vla.language_model import build_language_model
from labs.vla.policy import OBSERVATION_KEYS, Policy, PolicyConfig
from labs.vla.rollout import rollout
from labs.vla.training import fit

STEPS, ROBOTS, GROUP = 150, 96, 12
STEPS_OF_SUBJECT = 60


def phases(
    learner: Any,
    casts: list[str],
    dtype: str,
    asked: list[Tensor],
    asked_before: list[str],
    seed: int,
    base: float | None = None,
    head: int | None = None,
) -> list[dict[str, Tensor]]:
    """Cosines and sines (B, T, head) at each of the positions `asked` (B, T), in turn, for hidden states of `dtype`.

    After the casts; the policy has been asked for them before the casts in `asked_before` as well. With `base`, its
    language model is configured with this base of the rotary frequencies, with `head` with heads of this width.
    """
    with _rotary_config(base, head):
        policy = learner.policy.build_policy(seed)
    for cast in casts:
        if cast in asked_before:
            _ask(policy, policy.proprioception.weight.dtype, asked)
        policy = _cast(policy, [cast])
    return _ask(policy, getattr(torch, dtype), asked)


def padding(learner: Any, batch: Batch, seed: int) -> Tensor:
    """What the language model returns in the columns of padding, (P, D), for a fresh policy."""
    policy = learner.policy.build_policy(seed).eval()
    with torch.no_grad():
        embeddings, mask = policy.embed_prefix(**{name: batch[name] for name in OBSERVATION_KEYS})
        return policy.run_language_model(embeddings, mask)[mask == 0]


def row(learner: Any, batch: Batch, casts: list[str], seed: int) -> dict[str, Any]:
    """The chunk (B, H, A) and the feature (B, D) of a fresh policy after the casts, and what happens in the pass.

    `passes` has the shape of each input of the language model; `positions` and the cosines and sines are those of the
    rotary embedding's last call; `dtypes` are those of the outputs of all layers with parameters.
    """
    policy = _cast(learner.policy.build_policy(seed), casts).eval()
    seen: dict[str, Any] = {"passes": [], "dtypes": {}}

    def watch_rotary(_module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        seen["positions"] = kwargs.get("position_ids", args[-1] if args else None)
        seen["cos"], seen["sin"] = output

    def watch_input(_module: nn.Module, _args: Any, kwargs: Any) -> None:
        seen["passes"].append(list(kwargs["inputs_embeds"].shape[:2]))

    def watch_layer(name: str) -> Any:
        return lambda _module, _args, output: seen["dtypes"].update({name: _dtype(output)})

    language_model = policy.language_model
    language_model.register_forward_pre_hook(watch_input, with_kwargs=True)
    language_model.rotary_emb.register_forward_hook(watch_rotary, with_kwargs=True)
    for name, module in policy.named_modules():
        if list(module.parameters(recurse=False)):
            module.register_forward_hook(watch_layer(name))
    with torch.no_grad():
        seen["feature"] = policy.encode(**{name: batch[name] for name in OBSERVATION_KEYS}).float()
    seen["cos"], seen["sin"] = seen["cos"].clone(), seen["sin"].clone()
    seen["one_encode"] = list(seen["passes"])
    chunk = policy.predict(batch)
    return {**seen, "chunk": chunk.float(), "chunk_dtype": _dtype(chunk)}


def stored(learner: Any, casts: list[str], seed: int) -> dict[str, Tensor]:
    """The checkpoint of a fresh policy that has read a row, after the casts."""
    policy = _cast(learner.policy.build_policy(seed), casts).eval()
    policy.predict(collate(demonstrations(3, seed=1), range(3)))
    return dict(policy.state_dict())


def trained_on(learner: Any, batch: Batch, seed: int) -> dict[str, Any]:
    """The loss of a fresh policy in float32 and training mode, and its gradients."""
    policy = learner.policy.build_policy(seed).train()
    loss = policy(**batch).loss
    loss.backward()
    gradients = {name: value.grad for name, value in policy.named_parameters() if value.grad is not None}
    return {"loss": loss.detach(), "gradients": gradients}


def action(learner: Any, batch: Batch, seed: int) -> Tensor:
    """The chunk (B, H, A) of a fresh policy in bfloat16."""
    return learner.policy.build_policy(seed).bfloat16().eval().predict(batch)


def second_device(learner: Any, batch: Batch, seed: int) -> dict[str, Any]:
    """A step on a second device (pretended, in a child process) of a policy that has run on the CPU before."""
    policy = learner.policy.build_policy(seed)
    policy.predict(batch)
    return asdict(debugkit.simulate_device(policy, batch))


def fleet(learner: Any, seed: int, robots: int) -> dict[str, Tensor]:
    """Whether each robot of a fleet succeeds, by its place in the row, with a fine-tuned policy in bfloat16."""
    policy = _fine_tuned(learner, seed).bfloat16()
    return {"success": torch.from_numpy(rollout(policy, episodes=robots, first_seed=500_000 + robots * seed).success)}


def subject(learner: Any) -> dict[str, Any]:
    """debugkit.check()'s arguments: a trained policy in bfloat16, and a batch whose instructions differ in length."""
    policy = _fine_tuned(learner, 0, STEPS_OF_SUBJECT).bfloat16()
    return {
        "model": policy,
        "batch": collate(demonstrations(64, seed=27), range(64)),
        "optimizer": torch.optim.AdamW(policy.parameters(), lr=1e-3),
    }


def symptom(learner: Any) -> None:
    """Fine-tunes, and drives a fleet in three ways: the output of `lab run 27`."""
    policy = _fine_tuned(learner, 27)
    print(f"Fine-tuned in float32, {STEPS} steps. Then one server drives {ROBOTS} robots.\n")
    print(f"                               robots that succeed, by place in the row, {GROUP} each")
    places = [f"{start + 1}-{start + GROUP}" for start in range(0, ROBOTS, GROUP)]
    print(" " * 24 + "".join(f"{place:>7}" for place in places))
    _print_row("float32", rollout(policy, episodes=ROBOTS, first_seed=20_000).success)
    policy.bfloat16()
    _print_row("bfloat16", rollout(policy, episodes=ROBOTS, first_seed=20_000).success)

    def reversed_row(batch: Batch) -> Tensor:
        return policy.predict({name: value.flip(0) for name, value in batch.items()}).flip(0)

    success = rollout(policy, episodes=ROBOTS, first_seed=20_000, predict=reversed_row).success
    _print_row("bfloat16, row reversed", success[::-1])

    def one_by_one(batch: Batch) -> Tensor:
        rows = ({name: value[i : i + 1] for name, value in batch.items()} for i in range(ROBOTS))
        return torch.cat([policy.predict(one) for one in rows])

    success = rollout(policy, episodes=ROBOTS, first_seed=20_000, predict=one_by_one).success
    _print_row("bfloat16, one at a time", success)


def _print_row(name: str, success: Any) -> None:
    shares = success.reshape(-1, GROUP).mean(axis=1)
    print(f"{name:24}" + "".join(f"{share:7.0%}" for share in shares))


def _fine_tuned(learner: Any, seed: int, steps: int = STEPS) -> Any:
    """The learner's policy with the weights that the healthy one has after a fine-tuning in float32."""
    healthy = Policy.from_base(seed=seed)
    fit(healthy, demonstrations(64 * steps, seed), steps=steps, seed=seed)
    policy = learner.policy.build_policy(seed)
    policy.load_state_dict(healthy.state_dict())
    return policy.eval()


def _ask(policy: Any, dtype: torch.dtype, asked: list[Tensor]) -> list[dict[str, Tensor]]:
    x = torch.zeros(1, 1, policy.config.width, dtype=dtype)
    answers = [policy.language_model.rotary_emb(x, positions) for positions in asked]
    return [{"cos": cos, "sin": sin} for cos, sin in answers]


@contextmanager
def _rotary_config(base: float | None, head: int | None) -> Iterator[None]:
    """Language models that are built here have another base of the rotary frequencies and width of a head, if given."""

    def build(config: PolicyConfig) -> Any:
        model = build_language_model(config)
        if base is not None:
            model.config.rope_parameters["rope_theta"] = base
        if head is not None:
            model.config.head_dim = head
        if base is not None or head is not None:
            model.rotary_emb = type(model.rotary_emb)(model.config)
        return model

    with patch("labs.vla.policy.build_language_model", build):
        yield


def _cast(policy: Any, casts: list[str]) -> Any:
    """The policy after `.bfloat16()`, `.to(torch.bfloat16)`, or `.float()`, one after another."""
    for cast in casts:
        policy = policy.to(torch.bfloat16) if cast == "to" else getattr(policy, cast)()
    return policy


def _dtype(output: Any) -> str:
    tensor = output[0] if isinstance(output, tuple) else output
    return str(tensor.dtype).removeprefix("torch.")
