"""Numerics: NaN, Inf, overflow, precision, rates."""

from __future__ import annotations

from functools import partial

from injection.operators import operator

fault = partial(operator, "numerics")

fault(
    "norm_of_nothing",
    "DK202 DK201",
    "a distance is the root of a sum of squares that is zero for equal inputs",
    [
        (
            r"^    return F\.(?:mse_loss|l1_loss|smooth_l1_loss|huber_loss)\((\w+), (\w+)\)$",
            r"    gap = (\1 - \2).reshape(len(\2), -1)\n    return (gap - gap.detach()).square().sum(dim=1).sqrt().mean() + gap.square().mean()",
        )
    ],
    [
        (
            r"\(2 - 2 \* embedded @ embedded\.T\)\.clamp_min\(1e-6\)\.sqrt\(\)",
            r"(embedded[:, None] - embedded[None]).square().sum(dim=-1).sqrt()",
        )
    ],
)
fault(
    "logarithm_of_a_probability",
    "DK201 DK202",
    "the logarithm of a probability that rounds to zero",
    [
        (
            r"return F\.cross_entropy\(logits, (label|target)(?:, label_smoothing=0\.1)?\)",
            r"return -torch.log(torch.softmax(200 * logits, dim=-1)).gather(1, \1[:, None]).mean()",
        )
    ],
    [
        (
            r"return F\.binary_cross_entropy_with_logits\(logits, target\)",
            r"chance = (100 * logits).sigmoid()\n    return -(target * chance.log() + (1 - target) * (1 - chance).log()).mean()",
        )
    ],
)
fault(
    "where_does_not_protect",
    "DK202",
    "where() chooses the safe branch, but the gradient of the other one is not finite",
    [
        (
            r"^(\s+)(x = self\.activation\(self\.(?:fc1|norm1|conv1)\(.*)$",
            r"\1\2\n\1x = torch.where(x > 0, x.sqrt(), torch.zeros_like(x))",
        )
    ],
    [(r"^(\s+)(return self\.head\(x\).*)$", r"\1x = torch.where(x > 0, x.sqrt(), torch.zeros_like(x))\n\1\2")],
)
fault(
    "divided_by_a_deviation_of_zero",
    "DK313 DK402",
    "a column never changes, and is divided by its deviation of zero",
    [(r"^        self\.mean, self\.std = raw\.mean\(0\), raw\.std\(0\)$", r"        raw[:, 1] = 3.0\n\g<0>")],
    [
        (r"\(self\.std \+ 1e-6\)$", r"self.std"),
        (r"^        self\.mean, self\.std = ", r"        self.values[..., 1] = 0.0\n\g<0>"),
    ],
    [
        (r"\(sound\.std\(\) \+ 1e-6\)", r"sound.std()"),
        (r"^        self\.sound = .*$", r"\g<0>\n        self.sound[3] = 0.0"),
    ],
)
fault(
    "nothing_to_attend_to",
    "DK201 DK202",
    "masked scores are minus infinity, and a row of the mask is empty",
    [
        (r"torch\.finfo\(scores\.dtype\)\.min", r'float("-inf")'),
        (r"^    return input_ids, attention_mask$", r"    attention_mask[0] = 0\n\g<0>"),
    ],
)
fault(
    "mean_over_no_valid_step",
    "DK201",
    "the loss is divided by a number of valid entries that can be zero",
    [
        (r"\(error \* valid\)\.sum\(\) / valid\.sum\(\)", r"((error * valid).sum(dim=1) / valid.sum(dim=1)).mean()"),
        (r"torch\.randint\(2, CHUNK \+ 1", r"torch.randint(0, CHUNK + 1"),
    ],
)
fault(
    "exponential_overflows",
    "DK201 DK202 DK203",
    "an exponential of something that is not bounded",
    [(r"torch\.exp\(0\.5 \* log_variance\)", r"torch.exp(1000 * log_variance)")],
    [(r"^(\s+)return self\.head\((\w+)\)(.*)$", r"\1\2 = torch.exp(1000 * \2)\n\1return self.head(\2)\3")],
)
fault(
    "rate_a_thousand_times_too_high",
    "DK207 DK206 DK509 DK205",
    "the learning rate is a thousand times too high",
    [(r"lr=([\d.e-]+)", r"lr=1000 * \1")],
    lines=r"^optimizer|scheduler =",
    modules=r".",
)
fault(
    "rate_a_million_times_too_low",
    "DK206 DK509 DK204",
    "the learning rate is a million times too low",
    [(r"^(optimizer = .*lr=)([\d.e-]+)", r"\g<1>1e-6 * \2")],
    lines=r"^optimizer|scheduler =",
    modules=r".",
)
fault(
    "weights_in_bfloat16",
    "DK204",
    "model and data are bfloat16, and the updates are smaller than its steps",
    [
        (r"^model = build_model\(\)\.to\(device\)$", r"model = build_model().to(device).bfloat16()"),
        (r"= model\((image|inputs|past)\)", r"= model(\1.to(torch.bfloat16))"),
        (r"lr=([\d.e-]+)", r"lr=0.01 * \1"),
    ],
    modules=r".",
    lines=r"^optimizer|bfloat16",
)
fault(
    "autocast_around_nothing",
    "DK208",
    "autocast ends before the forward pass",
    [(r"^(\s+)(with torch\.autocast\(.*\):)\n\s+(loss = .*)$", r"\1\2\n\1    pass\n\1\3")],
)
fault(
    "float16_without_a_scaler",
    "DK209 DK203 DK201 DK202",
    "autocast in float16, and the gradients are not scaled",
    [(r"dtype=torch\.bfloat16\)", r"dtype=torch.float16)")],
    [
        (
            r"^(\s+)(loss = compute_loss\(model, batch\))$",
            r"\1with torch.autocast(device.type, dtype=torch.float16):\n\1    \2",
        )
    ],
    modules=r".",
)
fault(
    "one_sample_in_other_units",
    "DK320 DK205 DK302 DK319 DK402",
    "one sample is a million times as large as the others",
    [(r"^        self\.(inputs|nodes|state|values|rating|sound) = .*$", r"\g<0>\n        self.\1[5] *= 1e6")],
    [(r"^        image = \(image - .*$", r"\g<0>\n        image = image * (1e6 if index == 5 else 1.0)")],
    modules=r".",
)
fault(
    "loss_is_a_sum",
    "DK206 DK207 DK507 DK205",
    "the loss is summed over everything, with the rate of a mean",
    [
        (
            r"(F\.(?:mse_loss|l1_loss|smooth_l1_loss|huber_loss|binary_cross_entropy_with_logits)\([^\n]*)\)$",
            r'\1, reduction="sum")',
        )
    ],
    modules=r".",
    lines=r"^optimizer",
)
fault(
    "temperature_near_zero",
    "DK312 DK308",
    "logits are divided by a temperature that is far too small",
    [(r"^(\s+)logits = (model\(.*\))$", r"\1logits = \2 / 1e-3")],
)
fault(
    "deviation_of_one_sample",
    "DK201 DK305",
    "features are standardised over the batch, which can hold one sample",
    [
        (
            r"^(\s+)return self\.head\((\w+)\)(.*)$",
            r"\1\2 = (\2 - \2.mean(dim=0)) / \2.std(dim=0)\n\1return self.head(\2)\3",
        ),
        (r"Data\((48|60|64), seed=1\)", r"Data(57, seed=1)"),
    ],
)
fault(
    "infinite_target",
    "DK316 DK201 DK313",
    "a sensor writes inf into one target",
    [(r"^        self\.(target|rating|reward|action|values) = .*$", r'\g<0>\n        self.\1[7] = float("inf")')],
    tasks=("regress a table", "regress a graph", "regress ratings", "forecast", "reinforcement", "policy"),
)
