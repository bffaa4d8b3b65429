import numpy as np
import pytest
import torch

from labs.vla.policy import Policy
from labs.vla.rollout import ActionQueue, rollout
from labs.vla.tabletop import EPISODE_STEPS, Tabletop, expert_action


class Oracle:
    """Predicts from the tables themselves: what a perfect policy, or one with a known fault, would do."""

    def __init__(self, horizon=4, offset=0):
        self.horizon = horizon
        self.offset = offset
        self.tables: dict[int, Tabletop] = {}

    def watch(self, row, table):
        self.tables[row] = table

    def __call__(self, batch):
        chunks = []
        for row in range(len(batch["state"])):
            scene = self.tables[row].scene
            arm, block, chunk = scene.arm, scene.blocks[(scene.target + self.offset) % 3], []
            for _ in range(self.horizon):
                chunk.append(expert_action(arm, block))
                arm = np.clip(arm + chunk[-1][:2], 0, 1)
            chunks.append(np.stack(chunk))
        return torch.from_numpy(np.stack(chunks))


@pytest.mark.parametrize("execute", [1, 2, 4])
def test_perfect_actions_succeed_every_time(policy, execute):
    oracle = Oracle()
    result = rollout(policy, episodes=30, execute=execute, predict=oracle, on_frame=oracle.watch)
    assert result.success_rate == 1.0
    assert result.never_closed_rate == 0.0
    assert result.final_distance < 0.05


def test_going_to_another_block_is_counted_as_that(policy):
    oracle = Oracle(offset=1)
    result = rollout(policy, episodes=30, predict=oracle, on_frame=oracle.watch)
    assert (result.success_rate, result.wrong_block_rate) == (0.0, 1.0)


def test_standing_still_runs_out_of_time(policy):
    result = rollout(policy, episodes=3, predict=lambda batch: torch.tensor([0, 0, -1.0]).expand(3, 4, 3))
    assert result.never_closed_rate == 1.0
    assert result.steps.tolist() == [EPISODE_STEPS] * 3


def test_the_batch_keeps_every_episode_in_its_row(policy):
    oracle = Oracle()
    sizes = []

    def predict(batch):
        sizes.append(len(batch["state"]))
        return oracle(batch)

    result = rollout(policy, episodes=10, predict=predict, on_frame=oracle.watch)
    assert set(sizes) == {10}
    assert len(set(result.steps.tolist())) > 1


def test_an_episode_does_not_depend_on_its_neighbours(policy):
    together = rollout(policy, episodes=3, first_seed=50)
    alone = [rollout(policy, episodes=1, first_seed=50 + i) for i in range(3)]
    assert together.steps.tolist() == [result.steps[0] for result in alone]
    assert together.distance == pytest.approx([result.distance[0] for result in alone], abs=1e-5)


def test_frames_are_shown_from_the_reset_to_the_end(policy):
    oracle, shown = Oracle(), []

    def on_frame(row, table):
        oracle.watch(row, table)
        shown.append((row, table.scene.arm.copy()))

    result = rollout(policy, episodes=2, predict=oracle, on_frame=on_frame)
    assert [sum(row == index for row, _ in shown) for index in range(2)] == [steps + 1 for steps in result.steps]


def test_a_rollout_repeats_and_leaves_mode_and_random_state():
    policy = Policy.from_base(head="flow_matching").train()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, other = (rollout(policy, episodes=4) for _ in range(2))
    assert np.array_equal(one.distance, other.distance)
    assert torch.equal(torch.get_rng_state(), before)
    assert policy.training


def test_the_policy_acts_in_evaluation_mode_and_gets_its_mode_back_after_an_error():
    policy = Policy.from_base().train()
    policy.vision.eval()  # frozen, as in a fine-tuning that leaves its normalisation alone
    modes = []

    def predict(batch):
        modes.append(policy.training)
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        rollout(policy, episodes=1, predict=predict)
    assert modes == [False]
    assert policy.training
    assert not policy.vision.training


def test_the_queue_executes_a_chunk_in_order_then_asks_again():
    calls = []

    def predict(batch):
        calls.append(batch)
        return torch.arange(24.0).view(2, 4, 3) + 100 * len(calls)

    queue = ActionQueue(predict, execute=2)
    actions = torch.stack([queue({}) for _ in range(3)])
    assert len(calls) == 2
    assert actions[:, 0, 0].tolist() == [100, 103, 200]
    assert actions[:, 1, 0].tolist() == [112, 115, 212]


def test_the_queue_forgets_the_last_episode():
    calls = []
    queue = ActionQueue(lambda batch: calls.append(1) or torch.full((1, 4, 3), float(len(calls))), execute=4)
    queue({})
    queue.reset()
    assert queue({})[0, 0].item() == 2


def test_a_queue_must_execute_something(policy):
    with pytest.raises(ValueError, match="at least one action"):
        rollout(policy, episodes=1, execute=0)


def test_the_queue_refuses_to_execute_more_than_a_chunk_holds(policy):
    with pytest.raises(ValueError, match="4 actions"):
        rollout(policy, episodes=1, execute=5)
