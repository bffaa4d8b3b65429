import numpy as np
import torch

from labs.vla.dataset import sample_moments
from labs.vla.policy import Policy, load_base
from labs.vla.pretrain import GroundingBatch, pretrain, save_base
from labs.vla.tabletop import COLOUR_RGB
from labs.vla.vision import PIXEL_MEAN, PIXEL_STD


def test_pretraining_is_bitwise_repeatable():
    (one, losses), (other, again) = pretrain(steps=12, seed=1_000_000), pretrain(steps=12, seed=1_000_000)
    assert losses == again
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_pretraining_reads_no_action_and_trains_no_head():
    torch.manual_seed(1_000_000)
    untrained = Policy().head.state_dict()
    policy, _ = pretrain(steps=2, seed=1_000_000)
    assert all(torch.equal(policy.head.state_dict()[name], value) for name, value in untrained.items())
    assert "action" not in GroundingBatch.of(sample_moments(np.random.default_rng(0), 3)).observations


def test_the_answers_about_patches_are_what_the_pixels_show():
    batch = GroundingBatch.of(sample_moments(np.random.default_rng(4), 30))
    image = ((batch.observations["pixel_values"] * PIXEL_STD + PIXEL_MEAN) * 255).round().permute(0, 2, 3, 1)
    patches = image.unflatten(1, (4, 16)).unflatten(3, (4, 16)).transpose(2, 3).flatten(1, 2)  # (B, P, 16, 16, 3)
    # A block is 81 pixels and the gripper hides at most nine of them.
    shown = torch.stack([(patches == torch.from_numpy(rgb)).all(-1).sum((-1, -2)) >= 72 for rgb in COLOUR_RGB], dim=-1)
    assert torch.equal(shown, batch.patch_colour.bool())
    assert batch.patch_offset.abs().max() <= 1


def test_the_named_block_is_of_the_named_colour():
    moments = sample_moments(np.random.default_rng(6), 60)
    batch = GroundingBatch.of(moments)
    x, y = np.rint(batch.named_block.numpy() * 63).astype(int).T
    clear = np.linalg.norm(moments.arm - moments.target_block, axis=1) > 0.1  # the gripper's mark hides the block
    shown = moments.images()[np.arange(60), y, x]
    for colour, sentence, seen in zip(shown, moments.instruction, clear, strict=True):
        if seen:
            index = (colour == COLOUR_RGB).all(axis=1).argmax()
            assert ("red", "green", "blue", "yellow")[index] in sentence


def test_a_saved_base_is_loaded_back(tmp_path):
    policy, fresh = Policy(), Policy()
    save_base(policy, tmp_path / "base.safetensors", {"seed": "1000000"})
    load_base(fresh, tmp_path / "base.safetensors")
    assert torch.equal(fresh.vision.post_layernorm.weight, policy.vision.post_layernorm.weight)
    assert torch.equal(fresh.projector[0].weight, policy.projector[0].weight)
    assert not torch.equal(fresh.head.mlp[0].weight, policy.head.mlp[0].weight)
