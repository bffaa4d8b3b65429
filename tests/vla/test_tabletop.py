import warnings
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from labs.vla.tabletop import (
    CLOSED,
    COLOUR_RGB,
    GRASP_RADIUS,
    IMAGE_SIZE,
    MAX_STEP,
    Scene,
    Tabletop,
    camera_images,
    expert_action,
    sample_layouts,
)


def test_gymnasium_finds_nothing_to_warn_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("vla_debug_lab/Tabletop-v0", render_mode="rgb_array").unwrapped)


def test_the_expert_reaches_the_named_block_every_time():
    table = Tabletop()
    for seed in range(100):
        table.reset(seed=seed)
        ended = False
        while not ended:
            action = expert_action(table.scene.arm, table.scene.blocks[table.scene.target])
            assert table.action_space.contains(action)
            _, reward, terminated, truncated, info = table.step(action)
            ended = terminated or truncated
        assert (reward, info["success"], info["wrong_block"]) == (1.0, True, False)


def test_closing_at_another_block_ends_the_episode_without_a_reward():
    table = Tabletop()
    table.reset(seed=4)
    other = (table.scene.target + 1) % 3
    table.scene = replace(table.scene, arm=table.scene.blocks[other].copy())
    _, reward, terminated, _, info = table.step(np.array([0, 0, CLOSED], np.float32))
    assert (reward, terminated, info["success"], info["wrong_block"]) == (0.0, True, False, True)


def test_closing_on_nothing_goes_on():
    table = Tabletop()
    observation, _ = table.reset(seed=4)
    table.scene = replace(table.scene, arm=table.scene.blocks[0] + np.array([GRASP_RADIUS + 0.01, 0]))
    observation, reward, terminated, truncated, info = table.step(np.array([0, 0, CLOSED], np.float32))
    assert (reward, terminated, truncated, info["success"], info["wrong_block"]) == (0.0, False, False, False, False)
    assert observation["state"][2] == CLOSED


def test_the_gripper_closes_where_the_arm_arrives():
    table = Tabletop()
    table.reset(seed=4)
    block = table.scene.blocks[table.scene.target]
    table.scene = replace(table.scene, arm=block + np.array([MAX_STEP, 0]))
    _, _, _, _, info = table.step(np.array([-MAX_STEP, 0, CLOSED], np.float32))
    assert info["success"]


def test_one_action_moves_no_further_than_the_limit_and_not_off_the_table():
    table = Tabletop()
    table.reset(seed=1)
    table.scene = replace(table.scene, arm=np.array([0.95, 0.5]))
    table.step(np.array([5.0, -5.0, -1.0], np.float32))
    assert table.scene.arm == pytest.approx([1.0, 0.5 - MAX_STEP])


def test_an_episode_is_cut_after_its_steps():
    table = Tabletop(max_steps=3)
    table.reset(seed=1)
    assert [table.step(np.array([0, 0, -1], np.float32))[3] for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("action", [[np.nan, 0, 0], [0, 0], [[0, 0, 0]]])
def test_an_impossible_action_is_refused_in_a_sentence(action):
    table = Tabletop()
    table.reset(seed=0)
    with pytest.raises(ValueError, match="expects three finite numbers"):
        table.step(np.array(action, np.float32))


def test_an_unknown_render_mode_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="rgb_array"):
        Tabletop(render_mode="human")


def test_the_same_seed_lays_the_same_table():
    first, second = Tabletop(), Tabletop()
    one, other = first.reset(seed=7)[0], second.reset(seed=7)[0]
    assert np.array_equal(one["image"], other["image"])
    assert one["instruction"] == other["instruction"]
    assert not np.array_equal(one["image"], second.reset(seed=8)[0]["image"])


def test_a_given_scene_is_where_the_episode_starts():
    scene = Scene.sample(np.random.default_rng(5))
    table = Tabletop()
    table.reset(options={"scene": scene})
    assert table.scene is scene


def test_the_camera_shows_each_block_in_its_colour_where_it_is():
    blocks, colours = sample_layouts(np.random.default_rng(0), 50)
    arm = np.full((50, 2), 2.0)  # out of view, in the last column at most
    images = camera_images(blocks, colours, np.clip(arm, 0, 1), np.full(50, -1.0))
    pixels = np.rint(blocks * (IMAGE_SIZE - 1)).astype(int)
    for image, where, colour in zip(images, pixels, colours, strict=True):
        for (x, y), index in zip(where, colour, strict=True):
            assert (image[y - 3 : y + 3, x - 3 : x + 3] == COLOUR_RGB[index]).all()


def test_blocks_never_overlap_and_never_share_a_colour():
    blocks, colours = sample_layouts(np.random.default_rng(1), 2000)
    apart = np.linalg.norm(blocks[:, :, None] - blocks[:, None], axis=-1) + np.eye(3)
    assert apart.min() > 2 * GRASP_RADIUS  # else one closing could hold two
    assert all(len(set(row)) == 3 for row in colours.tolist())


def test_the_gripper_mark_is_white_while_open_and_black_when_closed():
    scene = replace(Scene.sample(np.random.default_rng(2)), arm=np.array([0.5, 0.25]))
    row, column = round(0.25 * 63), round(0.5 * 63)
    assert (scene.observation()["image"][row, column] == 255).all()
    assert (replace(scene, gripper=CLOSED).observation()["image"][row, column] == 0).all()


def test_render_draws_the_table_for_a_person_and_shows_what_changes():
    table = Tabletop(render_mode="rgb_array")
    table.reset(seed=3)
    before = table.render()
    assert before.shape == (432, 384, 3)
    assert before.dtype == np.uint8
    table.step(np.array([MAX_STEP, 0, -1], np.float32))
    after = table.render()
    assert (before != after).any(axis=-1).mean() > 0.01  # the arm
    assert np.array_equal(before[384:], after[384:])  # the caption
    assert Tabletop().render() is None
