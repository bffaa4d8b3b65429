import numpy as np
import pytest
import torch

from labs.vla.dataset import FIRST_PRETRAINING_SEED, batches, collate, demonstrations, sample_moments
from labs.vla.normalization import TABLETOP_MEAN, TABLETOP_STD
from labs.vla.tabletop import ACTION_HIGH, ACTION_LOW, Tabletop, expert_action


def test_the_same_seed_gives_the_same_frames_and_another_one_others():
    one, same, other = demonstrations(60, 5), demonstrations(60, 5), demonstrations(60, 6)
    assert one.instruction == same.instruction
    for name in ("image", "state", "action", "action_is_pad"):
        assert np.array_equal(getattr(one, name), getattr(same, name))
    assert not np.array_equal(one.image, other.image)


def test_no_table_is_shown_often_enough_to_memorise():
    moments = sample_moments(np.random.default_rng(0), 3000)
    tables = {
        blocks.tobytes() + colours.tobytes() for blocks, colours in zip(moments.blocks, moments.colours, strict=True)
    }
    assert len(tables) == 1000


def test_a_table_is_told_to_reach_each_of_its_blocks():
    moments = sample_moments(np.random.default_rng(0), 300)
    assert (np.sort(moments.target.reshape(100, 3), axis=1) == [0, 1, 2]).all()


@pytest.mark.parametrize("seed", [FIRST_PRETRAINING_SEED, -1])
def test_seeds_of_the_pretraining_are_refused_in_a_sentence(seed):
    with pytest.raises(ValueError, match="base checkpoint was pretrained"):
        demonstrations(3, seed)


def test_a_chunk_is_what_the_expert_does_in_the_closed_loop():
    frames = demonstrations(120, seed=9, horizon=6)
    moments = sample_moments(np.random.default_rng([1, 9]), 120)
    for row in range(120):
        arm, block, ended = moments.arm[row], moments.target_block[row], False
        for step in range(6):
            assert frames.action_is_pad[row, step] == ended
            if ended:
                assert np.array_equal(frames.action[row, step], frames.action[row, step - 1])
                continue
            expected = expert_action(arm, block)
            assert np.array_equal(frames.action[row, step], expected)
            arm, ended = np.clip(arm + expected[:2], 0, 1), expected[2] > 0


def test_frames_stay_inside_the_spaces_of_the_table():
    frames = demonstrations(600, seed=2)
    space = Tabletop().observation_space
    observations = zip(frames.image, frames.state, frames.instruction, strict=True)
    assert all(space.contains({"image": i, "state": s, "instruction": t}) for i, s, t in observations)
    assert (frames.action >= ACTION_LOW).all()
    assert (frames.action <= ACTION_HIGH).all()


def test_demonstrations_close_the_gripper_and_show_it_closed_on_nothing():
    frames = demonstrations(3000, seed=2)
    assert 0.05 < (frames.action[:, 0, 2] > 0).mean() < 0.2
    assert 0.05 < (frames.state[:, 2] > 0).mean() < 0.15


def test_the_shipped_action_statistics_are_those_of_the_demonstrations():
    measured = demonstrations(20_000, seed=0).statistics()
    assert measured.mean.tolist() == pytest.approx(TABLETOP_MEAN, abs=0.02)
    assert measured.std.tolist() == pytest.approx(TABLETOP_STD, rel=0.02)


def test_a_batch_has_the_promised_shapes_and_types(frames):
    batch = collate(frames, [4, 2, 9])
    shapes = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in batch.items()}
    assert shapes == {
        "pixel_values": ((3, 3, 64, 64), torch.float32),
        "input_ids": ((3, 8), torch.int64),
        "attention_mask": ((3, 8), torch.int64),
        "state": ((3, 3), torch.float32),
        "action": ((3, 4, 3), torch.float32),
        "action_is_pad": ((3, 4), torch.bool),
    }
    assert np.array_equal(batch["state"].numpy(), frames.state[[4, 2, 9]])


def test_pixels_are_near_zero_mean_and_unit_variance(frames):
    pixels = collate(frames, range(len(frames)))["pixel_values"]
    assert abs(pixels.mean()) < 0.1
    assert 0.9 < pixels.std() < 1.1


def test_every_frame_is_seen_once_before_any_is_seen_again(frames):
    states = torch.cat([batch["state"] for batch in batches(frames, 64, steps=8, seed=0)])
    assert len(states) == len(frames)
    assert torch.equal(states.unique(dim=0), torch.from_numpy(frames.state).unique(dim=0))


def test_batches_go_on_after_the_last_frame_and_repeat_by_seed(frames):
    first = [batch["state"] for batch in batches(frames, 200, steps=5, seed=1)]
    second = [batch["state"] for batch in batches(frames, 200, steps=5, seed=1)]
    assert len(first) == 5
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_more_than_there_is_cannot_be_batched(frames):
    with pytest.raises(ValueError, match="513 needs as many frames, and there are 512"):
        next(batches(frames, 513, steps=1, seed=0))
