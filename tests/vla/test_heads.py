import pytest
import torch
import torch.nn.functional as F

from labs.vla.heads import HEADS, FlowMatchingHead, RegressionHead, TokenHead, embed_time, mean_over_steps

WIDTH, HORIZON, ACTION = 16, 4, 3


@pytest.fixture
def feature():
    return torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def target():
    return torch.rand(5, HORIZON, ACTION, generator=torch.Generator().manual_seed(1)) * 2 - 1


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize(("horizon", "action_dim"), [(4, 3), (1, 7), (9, 2)])
def test_every_head_predicts_a_chunk_for_any_robot(name, horizon, action_dim, feature):
    head = HEADS[name](WIDTH, horizon, action_dim)
    assert head.predict(feature).shape == (5, horizon, action_dim)
    assert head.statistics().mean.shape == (action_dim,)
    assert torch.isfinite(head.statistics().normalize(torch.zeros(action_dim))).all()


@pytest.mark.parametrize("name", HEADS)
def test_padded_steps_move_neither_loss_nor_gradients(name, feature, target):
    head = HEADS[name](WIDTH, HORIZON, ACTION)
    is_pad = torch.zeros(5, HORIZON, dtype=torch.bool)
    is_pad[:, 2:] = True
    changed = target.clone()
    changed[:, 2:] = 1 - changed[:, 2:]
    results = []
    for actions in (target, changed):
        torch.manual_seed(0)
        loss = head.loss(feature, actions, is_pad)
        results.append([loss, *torch.autograd.grad(loss, head.parameters())])
    # The flow head reads the padded steps of the noisy chunk as input, so only its padded *targets* are without effect.
    if name != "flow_matching":
        assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
    all_padded = head.loss(feature, target, torch.ones_like(is_pad))
    assert all_padded.item() == 0


def test_the_mean_over_steps_is_the_mean_of_the_steps_that_count():
    error = torch.tensor([[1.0, 100.0], [3.0, 5.0]])
    is_pad = torch.tensor([[False, True], [False, False]])
    assert mean_over_steps(error, is_pad).item() == 3.0


def test_the_regression_loss_is_the_plain_mean_without_padding(feature, target):
    head = RegressionHead(WIDTH, HORIZON, ACTION)
    expected = F.smooth_l1_loss(head(feature), target, beta=0.1)
    assert torch.allclose(head.loss(feature, target, torch.zeros(5, HORIZON, dtype=torch.bool)), expected)


def test_the_token_loss_is_plain_cross_entropy_without_padding(feature, target):
    head = TokenHead(WIDTH, HORIZON, ACTION)
    expected = F.cross_entropy(head(feature).permute(0, 3, 1, 2), head.encode(target))
    assert torch.allclose(head.loss(feature, target, torch.zeros(5, HORIZON, dtype=torch.bool)), expected)


def test_tokens_lose_at_most_half_a_bin_and_are_not_biased():
    head = TokenHead(WIDTH, HORIZON, ACTION)
    action = torch.linspace(-1, 1, 10_001)
    error = head.decode(head.encode(action)) - action
    assert error.abs().max() <= 1 / head.bins + 1e-6
    assert abs(error.mean()) < 1e-4


def test_every_bin_decodes_to_itself():
    head = TokenHead(WIDTH, HORIZON, ACTION)
    tokens = torch.arange(head.bins)
    assert torch.equal(head.encode(head.decode(tokens)), tokens)


def test_tokens_start_with_neighbouring_bins_alike(feature):
    torch.manual_seed(0)
    logits = TokenHead(WIDTH, HORIZON, ACTION)(feature)
    assert logits.diff(dim=-1).abs().mean() < 0.5 * (logits - logits.flip(-1)).abs().mean()


def test_the_flow_ends_at_the_target_when_the_velocity_is_exact(feature, target):
    head = FlowMatchingHead(WIDTH, HORIZON, ACTION)
    # On the straight path from noise to target, velocity = (target - position) / (1 - time).
    head.forward = lambda _feature, noisy, time: (target - noisy) / (1 - time[:, None, None])
    assert torch.allclose(head.predict(feature), target, atol=1e-5)


def test_the_flow_loss_vanishes_for_the_exact_velocity(feature, target):
    head = FlowMatchingHead(WIDTH, HORIZON, ACTION)
    repeated = target.repeat_interleave(head.draws, 0)
    head.forward = lambda _feature, noisy, time: (repeated - noisy) / (1 - time[:, None, None])
    assert head.loss(feature, target, torch.zeros(5, HORIZON, dtype=torch.bool)) < 1e-6


def test_the_flow_samples_again_and_repeats_by_seed(feature):
    head = FlowMatchingHead(WIDTH, HORIZON, ACTION)
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(head.predict(feature))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_flow_times_are_told_apart():
    embedded = embed_time(torch.linspace(0, 1, 101))
    assert torch.pdist(embedded).min() > 1e-2
