import numpy as np
import pytest
from PIL import Image

from labs.vla.film import contact_sheet, episode_gif, record
from labs.vla.policy import Policy
from labs.vla.rollout import rollout
from labs.vla.tabletop import Tabletop


def test_a_recorded_episode_is_the_one_that_rollout_runs(policy):
    episode = record(policy, [10_002])[0]
    result = rollout(policy, episodes=1, first_seed=10_002)
    assert len(episode.scenes) == result.steps[0] + 1
    assert episode.distance == pytest.approx(result.distance[0])
    assert np.array_equal(episode.scenes[0].blocks, _first_scene(10_002).blocks)


def test_a_gif_holds_every_step_of_the_episode(policy, tmp_path):
    path = episode_gif(tmp_path / "episode.gif", policy, seed=10_002)
    with Image.open(path) as film:
        assert film.size == (384, 432)
        assert film.n_frames == len(record(policy, [10_002])[0].scenes)


def test_policies_act_side_by_side_on_the_same_table(policy, tmp_path):
    policies = {"one": policy, "other": Policy.from_base(seed=1)}
    path = episode_gif(tmp_path / "both.gif", policies, width=96)
    with Image.open(path) as film:
        film.seek(0)
        first = np.asarray(film.convert("RGB")).astype(int)
    assert first.shape == (108 + 30, 96 + 6 + 96, 3)
    left, right = first[30:, :96], first[30:, 102:]
    assert np.array_equal(left, right)  # the first picture shows the same table to both


def test_a_contact_sheet_has_a_row_for_each_policy_and_seed(policy, tmp_path):
    path = contact_sheet(tmp_path / "sheet.png", {"healthy": policy}, seeds=(1, 2), columns=3, width=96)
    with Image.open(path) as sheet:
        assert sheet.size == (3 * 96 + 2 * 6, 2 * (108 + 30) + 6)
        assert len(np.unique(np.asarray(sheet).reshape(-1, 3), axis=0)) > 100


def test_a_film_of_nobody_is_refused(tmp_path):
    with pytest.raises(ValueError, match="given no policy"):
        episode_gif(tmp_path / "none.gif", {})


def _first_scene(seed):
    table = Tabletop()
    table.reset(seed=seed)
    return table.scene
