"""Faults of actions: scale, timing and the robot's side."""

from __future__ import annotations

from labs.mystery.operators.operator import POLICY, TRAIN, Edit, Operator

ACTIONS = (
    Operator(
        "wrong_way_back",
        "actions",
        2,
        "DK401",
        "scaler",
        "scaling",
        "The arm moves in the right direction and hovers beside its goal.",
        "Undoing the scale is not its inverse.",
        (
            Edit(POLICY, "return action * self.std + self.mean", "return (action + self.mean) * self.std"),
            Edit(
                POLICY,
                "return (action + 1.0) / 2.0 * self.span + self.low",
                "return action / 2.0 * self.span + self.low",
            ),
        ),
    ),
    Operator(
        "normalised_actions_executed",
        "actions",
        1,
        "lab41",
        "policy",
        "outputs",
        "The arm moves far too fast, against its limits.",
        "The policy returns normalised actions: they are not converted to the robot's units.",
        (
            Edit(
                POLICY,
                "$chunk = self.$scaler.unnormalize(self.$head.decode(feature))",
                "$chunk = self.$head.decode(feature)",
            ),
        ),
    ),
    Operator(
        "statistics_with_padding",
        "actions",
        2,
        "DK402",
        "scaler",
        "scaling",
        "The scale of the actions depends on how long the episodes are.",
        "Padded steps count in the statistics.",
        (Edit(POLICY, "rows = action[~action_is_pad]  # (M, A)", "rows = action.flatten(0, 1)  # (M, A)"),),
    ),
    Operator(
        "one_scale_for_all",
        "actions",
        2,
        "DK402",
        "scaler",
        "scaling",
        "Small motions are lost beside large ones.",
        "One statistic is computed over all numbers of an action, which have different units.",
        (
            Edit(
                POLICY,
                "$Scaler(rows.mean(dim=0), rows.std(dim=0)",
                "$Scaler(rows.mean(dim=0), rows.std().expand(ACTION_DIM)",
            ),
            Edit(
                POLICY,
                "low, high = rows.amin(dim=0), rows.amax(dim=0)",
                "low, high = rows.amin(dim=0), rows.amax().expand(ACTION_DIM)",
            ),
        ),
    ),
    Operator(
        "plan_survives_reset",
        "actions",
        2,
        "DK406",
        "runner",
        "serving",
        "The first actions of an episode belong to the episode before.",
        "A reset does not clear what was planned or executed before.",
        (
            Edit(POLICY, "        self.$queue.clear()\n", "        self.policy.eval()\n"),
            Edit(
                POLICY,
                '        """A new episode begins."""\n        self.last = None\n',
                '        """A new episode begins."""\n        self.policy.eval()\n',
            ),
        ),
    ),
    Operator(
        "one_step_late",
        "actions",
        2,
        "DK403",
        "data",
        "data",
        "The arm is always a moment too early.",
        "The chunk of a frame begins one step after the frame.",
        (
            Edit(
                TRAIN,
                'episode["action"][start : start + self.horizon]',
                'episode["action"][start + 1 : start + 1 + self.horizon]',
            ),
            Edit(
                TRAIN,
                "when = torch.arange(start, start + self.horizon)",
                "when = torch.arange(start, start + self.horizon) + 1",
            ),
        ),
    ),
    Operator(
        "state_of_the_future",
        "actions",
        2,
        "DK404",
        "data",
        "data",
        "The validation loss is excellent, and the arm does not know where to go.",
        "A frame's state is that of the next moment, which already tells what the action did.",
        (
            Edit(
                TRAIN,
                '"state": episode["state"][start],',
                '"state": episode["state"][min(start + 1, len(episode["state"]) - 1)],',
            ),
        ),
    ),
    Operator(
        "last_action_first",
        "actions",
        2,
        "lab41",
        "runner",
        "serving",
        "Within every chunk the arm moves backwards.",
        "The planned actions are executed from the wrong end.",
        (
            Edit(POLICY, "return self.$queue.popleft()", "return self.$queue.pop()"),
            Edit(POLICY, "self.$queue.appendleft($chunk)", "self.$queue.append($chunk)"),
        ),
    ),
    Operator(
        "weight_on_the_oldest",
        "actions",
        2,
        "lab52",
        "runner",
        "serving",
        "The arm reacts late to what it sees.",
        "The oldest chunks have most weight, not the newest.",
        (
            Edit(
                POLICY,
                "weight = self.fading ** torch.arange(len(votes))",
                "weight = self.fading ** torch.arange(len(votes)).flip(0)",
            ),
            Edit(
                POLICY,
                "self.inertia * self.last + (1.0 - self.inertia) * action",
                "(1.0 - self.inertia) * self.last + self.inertia * action",
            ),
        ),
    ),
    Operator(
        "served_without_a_batch",
        "actions",
        1,
        "DK001",
        "runner",
        "serving",
        "The policy trains, and raises an error on the robot.",
        "The robot's image is passed without the axis for the batch.",
        (Edit(POLICY, "self.policy.predict(image[None], input_ids", "self.policy.predict(image, input_ids"),),
    ),
    Operator(
        "served_upside_down",
        "actions",
        2,
        "DK407",
        "runner",
        "serving",
        "The validation loss is good, and the robot reaches in the wrong direction.",
        "The robot's image is flipped before the policy sees it, and the training images are not.",
        (
            Edit(
                POLICY,
                "self.policy.predict(image[None], input_ids",
                "self.policy.predict(image.flip(0)[None], input_ids",
            ),
        ),
    ),
)
