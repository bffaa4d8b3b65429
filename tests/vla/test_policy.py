import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import nn

from labs.vla.heads import HEADS, RegressionHead
from labs.vla.language_model import position_ids_from_mask
from labs.vla.policy import BASE_CHECKPOINT, BASE_PARTS, OBSERVATION_KEYS, Policy, PolicyConfig


def padded(batch, left=0, right=0):
    more = {name: F.pad(batch[name], (left, right)) for name in ("input_ids", "attention_mask")}
    return {**batch, **more}


def equal_parameters(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("padding", [{"right": 8}, {"right": 24}, {"left": 8}, {"left": 3, "right": 5}])
def test_padding_does_not_move_the_action(policy, batch, padding):
    action = policy.predict(batch)
    assert (policy.predict(padded(batch, **padding)) - action).abs().max() < 1e-6


def test_padding_does_not_move_the_loss_or_a_gradient(policy, batch):
    gradients = []
    for inputs in (batch, padded(batch, right=8)):
        loss = policy(**inputs).loss
        gradients.append(torch.autograd.grad(loss, list(policy.parameters())))
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(*gradients, strict=True))


def test_a_batch_is_its_samples_one_by_one(policy, batch):
    together = policy.predict(batch)
    alone = torch.cat([policy.predict({name: value[i : i + 1] for name, value in batch.items()}) for i in range(8)])
    assert torch.allclose(together, alone, atol=1e-6)


def test_positions_count_real_tokens_only():
    mask = torch.tensor([[1, 1, 0, 0, 1], [0, 1, 1, 1, 1]])
    assert position_ids_from_mask(mask).tolist() == [[0, 1, 1, 1, 2], [0, 0, 1, 2, 3]]


@pytest.mark.parametrize("head", HEADS)
def test_every_parameter_gets_a_gradient(head, batch):
    policy = Policy.from_base(head=head)
    policy(**batch).loss.backward()
    without = [name for name, parameter in policy.named_parameters() if parameter.grad is None]
    assert without == []
    # A key's bias shifts all scores of a query alike, so softmax cancels it: its gradient is 0 up to rounding.
    still = [n for n, p in policy.named_parameters() if not p.grad.abs().max() > 0 and not n.endswith("k_proj.bias")]
    assert still == []


@pytest.mark.parametrize("modality", ["pixel_values", "input_ids", "state"])
def test_every_modality_matters(policy, batch, modality):
    shuffled = {**batch, modality: batch[modality].roll(1, dims=0)}
    if modality == "input_ids":
        shuffled["attention_mask"] = batch["attention_mask"].roll(1, dims=0)
    moved = (policy.predict(shuffled) - policy.predict(batch)).abs().amax(dim=(1, 2))
    assert (moved > 1e-3).float().mean() > 0.5


def test_the_same_call_trains_with_actions_and_predicts_without(policy, batch):
    trained = policy(**batch)
    assert trained.loss.shape == ()
    assert trained.action is None
    predicted = policy(**{name: batch[name] for name in OBSERVATION_KEYS})
    assert predicted.loss is None
    assert torch.equal(predicted.action, policy.predict(batch))


def test_the_loss_is_read_in_environment_units(policy, batch):
    """A policy that predicts the demonstrated actions exactly has no loss."""
    policy.head.forward = lambda _feature: policy.action_statistics.normalize(batch["action"])
    assert policy(**batch).loss.item() == 0
    assert torch.allclose(policy.predict(batch), batch["action"], atol=1e-6)


def test_predicting_leaves_no_graph_behind(policy, batch):
    assert not policy.predict(batch).requires_grad


def test_padded_actions_do_not_move_the_loss(policy, batch):
    changed = {**batch, "action": torch.where(batch["action_is_pad"][..., None], 7.0, batch["action"])}
    assert batch["action_is_pad"].any()
    assert torch.equal(policy(**changed).loss, policy(**batch).loss)


def test_from_base_loads_every_tensor_of_the_file():
    policy = Policy.from_base()
    own = policy.state_dict()
    with safe_open(BASE_CHECKPOINT, framework="pt") as file:
        names = set(file.keys())
        assert all(torch.equal(own[name], file.get_tensor(name)) for name in names)
    assert names == {name for name in own if name.split(".")[0] in BASE_PARTS}


def test_from_base_draws_the_head_from_its_seed_and_nothing_else_from_the_caller():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, same, other = (Policy.from_base(seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    weights = [policy.head.mlp[0].weight for policy in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(one.projector[0].weight, other.projector[0].weight)


def test_only_the_named_parts_are_reinitialised():
    loaded, fresh = Policy.from_base(), Policy.from_base(reinitialise=("vision",))
    same = {part: equal_parameters(loaded.get_submodule(part), fresh.get_submodule(part)) for part in BASE_PARTS}
    assert same == {"vision": False, "projector": True, "language_model": True, "proprioception": True}


def test_an_unknown_part_is_named():
    with pytest.raises(ValueError, match="no part \\['visoin'\\]"):
        Policy.from_base(reinitialise=("visoin",))


def test_an_unknown_head_is_named():
    with pytest.raises(ValueError, match="no action head 'diffusion'"):
        Policy.from_base(head="diffusion")


def test_a_checkpoint_of_other_sizes_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="width 32, not 64"):
        Policy.from_base(replace(PolicyConfig.tiny(), width=32))


def test_the_checkpoint_is_small_and_says_how_it_was_made():
    assert BASE_CHECKPOINT.stat().st_size < 1_000_000
    with safe_open(BASE_CHECKPOINT, framework="pt") as file:
        metadata = file.metadata()
    assert metadata["command"].startswith("python -m labs.vla.pretrain")
    assert int(metadata["seed"]) >= 1_000_000
    assert json.loads(metadata["losses"])["state"] < 0.02


def test_one_part_can_be_replaced_by_overriding_one_method(batch):
    class TwoHeads(Policy):
        def build_head(self):
            return WithGripper(self.config.width, self.config.horizon, self.config.action_dim)

    class WithGripper(RegressionHead):
        def __init__(self, width, horizon, action_dim):
            super().__init__(width, horizon, action_dim)
            self.gripper = nn.Linear(width, horizon)

        def forward(self, feature):
            return torch.cat([super().forward(feature)[..., :2], self.gripper(feature)[..., None]], dim=-1)

    policy = TwoHeads.from_base()
    assert isinstance(policy, TwoHeads)
    policy(**batch).loss.backward()
    assert policy.head.gripper.weight.grad.abs().max() > 0


def test_rotary_phases_stay_exact_after_a_cast_to_bfloat16():
    policy = Policy(PolicyConfig.tiny())
    rotary = policy.language_model.rotary_emb
    positions = torch.tensor([[1, 2000]])
    expected = rotary(torch.zeros(1, 2, 64), positions)
    policy.bfloat16()
    assert policy.language_model.layers[0].self_attn.q_proj.weight.dtype == torch.bfloat16
    actual = policy.language_model.rotary_emb(torch.zeros(1, 2, 64), positions)
    assert all(torch.equal(one, other) for one, other in zip(actual, expected, strict=True))


def test_the_policy_runs_in_bfloat16(policy, batch):
    exact = policy.predict(batch)
    rough = policy.bfloat16().predict(batch)
    assert (rough - exact).abs().max() < 0.05
    assert torch.isfinite(policy(**batch).loss)


def test_rotary_frequencies_survive_a_trip_over_the_meta_device():
    policy = Policy(PolicyConfig.tiny())
    expected = policy.language_model.rotary_emb.inv_freq.clone()
    policy.to("meta").to_empty(device="cpu")
    assert torch.equal(policy.language_model.rotary_emb.inv_freq, expected)


def test_the_large_policy_has_smolvlas_size_without_using_its_memory():
    with torch.device("meta"):
        policy = Policy(PolicyConfig.smolvla_sized())
    assert all(parameter.is_meta for parameter in policy.parameters())
    assert 440e6 < sum(parameter.numel() for parameter in policy.parameters()) < 460e6


def test_the_tiny_policy_is_tiny():
    assert sum(parameter.numel() for parameter in Policy().parameters()) < 200_000
