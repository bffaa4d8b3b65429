import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labs.vla.normalization import ActionStatistics
from labs.vla.tabletop import ACTION_HIGH, ACTION_LOW
from labs.vla.vision import normalize_pixels

_number = st.floats(-1, 1, width=32)
_width = st.floats(0.0078125, 2, width=32)


@given(st.tuples(_number, _number), st.tuples(_width, _width), st.lists(st.tuples(_number, _number), min_size=1))
def test_unnormalize_is_the_inverse_of_normalize(mean, std, actions):
    statistics = ActionStatistics(mean, std)
    action = torch.tensor(actions)
    assert torch.allclose(statistics.unnormalize(statistics.normalize(action)), action, atol=1e-6)


def test_statistics_leave_padded_steps_out():
    action = np.array([[[1.0], [99.0]], [[3.0], [99.0]]], np.float32)
    statistics = ActionStatistics.from_actions(action, np.array([[False, True], [False, True]]))
    assert (statistics.mean.item(), statistics.std.item()) == (2.0, 1.0)


def test_the_action_space_fills_minus_one_to_one():
    statistics = ActionStatistics.tabletop_bounds()
    assert torch.allclose(statistics.normalize(torch.from_numpy(ACTION_LOW)), torch.tensor(-1.0))
    assert torch.allclose(statistics.normalize(torch.from_numpy(ACTION_HIGH)), torch.tensor(1.0))


def test_a_cast_does_not_round_the_statistics():
    statistics = ActionStatistics([0.123456789], [0.3333333])
    before = statistics.mean.clone()
    cast = statistics.bfloat16()
    assert cast.mean.dtype == torch.float32
    assert torch.equal(cast.mean, before)
    assert statistics.to("meta").mean.device.type == "meta"


def test_the_statistics_travel_with_the_checkpoint():
    saved = ActionStatistics([0.5], [2.0]).state_dict()
    loaded = ActionStatistics([0.0], [1.0])
    loaded.load_state_dict(saved)
    assert loaded.unnormalize(torch.tensor([1.0])).item() == 2.5


def test_a_dimension_that_never_moves_is_named():
    with pytest.raises(ValueError, match=r"dimension\(s\) \[1\] have a std of 0"):
        ActionStatistics([0.0, 0.0], [1.0, 0.0])


def test_mean_and_std_must_have_one_width():
    with pytest.raises(ValueError, match=r"\(2,\) and \(1,\)"):
        ActionStatistics([0.0, 0.0], [1.0])


@pytest.mark.parametrize("image", [torch.zeros(1, 64, 64, 3), torch.zeros(1, 3, 64, 64, dtype=torch.uint8)])
def test_an_image_that_is_not_as_the_camera_gives_it_is_refused(image):
    with pytest.raises(ValueError, match="takes uint8 images"):
        normalize_pixels(image)
