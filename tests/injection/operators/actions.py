"""Actions: normalisers, chunks, tokens, queues."""

from __future__ import annotations

from functools import partial

from injection.operators import operator

fault = partial(operator, "actions", tasks=("policy",))

fault(
    "mean_forgotten_on_the_way_back",
    "DK401",
    "unnormalising forgets the mean",
    [(r"return action \* \(self\.std \+ 1e-6\) \+ self\.mean", r"return action * (self.std + 1e-6)")],
)
fault(
    "deviation_squared",
    "DK401",
    "normalising divides by the variance",
    [(r"\(action - self\.mean\) / \(self\.std \+ 1e-6\)", r"(action - self.mean) / (self.std**2 + 1e-6)")],
)
fault(
    "multiplied_in_both_directions",
    "DK401",
    "both directions multiply",
    [(r"\(action - self\.mean\) / \(self\.std \+ 1e-6\)", r"(action - self.mean) * (self.std + 1e-6)")],
)
fault(
    "range_on_one_side",
    "DK401",
    "one side uses the deviation and the other one a range",
    [(r"return action \* \(self\.std \+ 1e-6\) \+ self\.mean", r"return action * 2 * (self.std + 1e-6) + self.mean")],
)
fault(
    "gripper_inverted",
    "DK401",
    "the sign of the gripper is turned on the way back",
    [
        (
            r"return action \* \(self\.std \+ 1e-6\) \+ self\.mean",
            r"return (action * (self.std + 1e-6) + self.mean) * torch.tensor([1.0, 1.0, -1.0], device=action.device)",
        )
    ],
)
fault(
    "statistics_of_other_data",
    "DK402",
    "the statistics are those of another robot, in millimetres",
    [
        (
            r"ACTION_MEAN, ACTION_STD = statistics\.mean\(0\), statistics\.std\(0\)",
            r"ACTION_MEAN, ACTION_STD = 1000 * statistics.mean(0), 1000 * statistics.std(0)",
        )
    ],
    modules=r"normaliser",
)
fault(
    "joint_that_never_moves",
    "DK402 DK401 DK201",
    "a joint never moved in the data of the statistics",
    [(r"^statistics = .*$", r"\g<0>\nstatistics[:, 1] = 0.3"), (r"\(self\.std \+ 1e-6\)", r"(self.std + 1e-12)")],
    modules=r"normaliser",
)
fault(
    "statistics_of_one_number",
    "DK402",
    "one mean and one deviation are used for all dimensions",
    [(r"statistics\.mean\(0\), statistics\.std\(0\)", r"statistics.mean(), statistics.std()")],
    modules=r"normaliser",
)
fault(
    "prediction_reads_the_demonstration",
    "DK404",
    "at inference the policy reads the action that it should predict",
    [
        (
            r'torch\.cat\(\[batch\["state"\], batch\["goal"\]\], dim=-1\)',
            r'torch.cat([batch["state"], batch["action"][:, 0, :2]], dim=-1)',
        )
    ],
    [(r'self\.state\(batch\["state"\]\)', r'self.state(F.pad(batch["action"][:, 0], (0, 1)))')],
)
fault(
    "queue_not_cleared",
    "DK406",
    "reset does not clear the queue of actions",
    [(r"^    def reset\(self\):\n        self\.queue = \[\]", r"    def reset(self):\n        pass")],
)
fault(
    "actions_smoothed_across_episodes",
    "DK406",
    "actions are averaged with the last ones, and reset does not clear the average",
    [
        (
            r"return self\.queue\.pop\(0\)",
            r'self.last = 0.5 * self.queue.pop(0) + 0.5 * getattr(self, "last", 0.0)\n        return self.last',
        )
    ],
)
fault(
    "actions_executed_backwards",
    "",
    "the queue is emptied from its end",
    [(r"self\.queue\.pop\(0\)", r"self.queue.pop()")],
)
fault(
    "not_unnormalised",
    "DK401 DK407",
    "the robot gets normalised actions",
    [(r"self\.normaliser\.unnormalise\((self\(batch\)|x)\)", r"\1")],
)
fault(
    "left_edges_of_the_bins",
    "DK405",
    "tokens decode to the edge of their bin",
    [(r"\(tokens \+ 0\.5\) / BINS", r"tokens / BINS")],
)
fault(
    "one_bin_fewer_on_the_way_back",
    "DK405",
    "decoding counts one bin fewer than encoding",
    [(r"\(tokens \+ 0\.5\) / BINS", r"(tokens + 0.5) / (BINS - 1)")],
)
fault(
    "range_of_another_dimension",
    "DK405",
    "all dimensions are decoded with the range of the first",
    [(r"return self\.low \+ (.*)\(self\.high - self\.low\)", r"return self.low[0] + \1(self.high[0] - self.low[0])")],
)
fault(
    "padded_actions_are_learnt",
    "DK309",
    "steps behind the end of the episode are learnt",
    [(r"\(error \* valid\)\.sum\(\) / valid\.sum\(\)", r"error.mean()")],
)
fault(
    "padded_actions_dilute_the_mean",
    "DK309",
    "padded steps count in the denominator",
    [(r"\(error \* valid\)\.sum\(\) / valid\.sum\(\)", r"(error * valid).mean()")],
)
fault(
    "chunk_one_step_late",
    "DK403",
    "the chunk begins one step after the observation",
    [(r'"action": self\.action\[index\]', r'"action": self.action[index].roll(-1, 0)')],
)
fault(
    "target_not_normalised",
    "",
    "the target of the loss is not normalised, and the prediction is unnormalised",
    [(r'target = model\.normaliser\.normalise\(batch\["action"\]\)', r'target = batch["action"]')],
)
fault("velocity_of_the_wrong_sign", "", "the velocity is learnt backwards", [(r"target - noise\)", r"noise - target)")])
fault(
    "time_runs_backwards_at_inference",
    "",
    "noise and data are swapped between training and inference",
    [(r"noisy = \(1 - (time.*)\) \* noise \+ (time.*) \* target", r"noisy = \2 * noise + (1 - \1) * target")],
)
