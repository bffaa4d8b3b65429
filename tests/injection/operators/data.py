"""Data and tokens: pixels, labels, padding, masks, leaks."""

from __future__ import annotations

from functools import partial

from injection.operators import operator

fault = partial(operator, "data")
_PIXELS = (r"(self\.pixels\[index\])(?:\.float\(\) / 255|\.to\(torch\.float32\)\.div\(255\.0\))", r"\1.float()")
_CLASSES = ("classify images", "classify text", "classify a table", "classify sound")

fault(
    "raw_pixels",
    "DK301 DK302",
    "pixels are not divided by 255 and not normalised",
    [_PIXELS, (r"^        image = \(image - MEAN\) / STD\n", "")],
    [(r"\((self\.pixels\[index\]\.float\(\)) / 255 - 0\.5\) / 0\.25", r"\1")],
    modules=r"conv|embed|stem|backbone|vision|encoder|patch",
)
fault(
    "statistics_of_other_units",
    "DK302 DK301",
    "pixels are not divided by 255, and normalised with statistics for 0 to 1",
    [_PIXELS],
    [(r"self\.pixels\[index\]\.float\(\) / 255 - 0\.5", r"self.pixels[index].float() - 0.5")],
    modules=r"conv|embed|stem|backbone|vision|encoder|patch",
)
fault(
    "normalised_twice",
    "DK302",
    "pictures are normalised in the data set, and once more before the model",
    [
        (
            r"^    (image, label = .*|logits = model\(batch\[\"image\"\].*)$",
            r'    batch["image"] = (batch["image"] - MEAN) / STD\n    \1',
        )
    ],
    [(r"^        (image = \(image - MEAN\) / STD)$", r"        \1\n        \1")],
    modules=r"conv|embed|stem|backbone|vision|encoder|patch",
)
fault(
    "divided_by_255_twice",
    "DK302",
    "pixels are divided by 255 twice",
    [(r"^        image = \(image - MEAN", r"        image = image / 255\n\g<0>")],
    modules=r"conv|embed|stem|backbone|vision|encoder|patch",
)
fault(
    "mean_and_deviation_swapped",
    "DK302",
    "mean and deviation are swapped",
    [(r"\(image - MEAN\) / STD", r"(image - STD) / MEAN")],
    modules=r"conv|embed|stem|backbone|vision|encoder|patch",
)
fault(
    "validation_without_normalisation",
    "DK407",
    "validation pictures are prepared in another way than those of training",
    [
        (
            r"^        image = \(image - MEAN\) / STD$",
            r"        if len(self) != 16:\n            image = (image - MEAN) / STD",
        )
    ],
)
fault(
    "mask_not_handed_on",
    "DK303 DK315",
    "the attention mask is not given to the model",
    [(r", attention_mask=attention_mask\)", r")")],
    [(r"^    return model\(\*\*batch\)\.loss$", r'    batch.pop("attention_mask")\n\g<0>')],
    [(r'"attention_mask": attention_mask', r'"attention_mask": torch.ones_like(attention_mask)')],
    [(r"^        allowed = allowed & attention_mask.*\n", "")],
    tasks=("classify text", "language model", "masked tokens", "sequence to sequence"),
    modules=r".",
)
fault(
    "sequences_not_packed",
    "DK303",
    "a recurrent network reads the padding behind each sequence",
    [
        (
            r"^        lengths = .*\n        packed = .*\n        _, last = self\.rnn\(packed\)$",
            r"        _, last = self.rnn(x)",
        )
    ],
    modules=r"rnn|fc1|head",
)
fault(
    "mean_over_the_padding",
    "DK303 DK315",
    "features are averaged over padded positions, too",
    [
        (
            r"\(hidden \* attention_mask\[\.\.\., None\]\)\.sum\(dim=1\) / attention_mask\.sum\(dim=1, keepdim=True\)",
            r"hidden.mean(dim=1)",
        )
    ],
    modules=r"head|dropout|backbone",
)
fault(
    "mask_inverted",
    "DK303 DK315 DK326",
    "the mask is 1 where there is padding",
    [(r'"attention_mask": attention_mask', r'"attention_mask": 1 - attention_mask')],
    modules=r".",
)
fault(
    "no_causal_mask",
    "DK304",
    "a language model attends to later tokens",
    [(r"torch\.tril\((torch\.ones\(.*\))\)", r"\1")],
    modules=r"attention|blocks",
)
fault(
    "target_not_shifted",
    "DK304",
    "a language model is trained to say the token that it reads",
    [(r'targets = batch\["labels"\]\[:, 1:\]', r'targets = batch["labels"]'), (r"logits\[:, :-1\]", r"logits")],
    modules=r".",
)
fault(
    "shifted_twice",
    "DK314",
    "the labels are shifted in the data and once more by the loss",
    [(r"^    (labels = .*)$", r"    \1\n    labels = F.pad(labels[:, 1:], (0, 1), value=-100)")],
    tasks=("language model",),
)
fault(
    "padding_is_learnt",
    "DK309",
    "the padding is not ignored by the loss",
    [(r"^    labels = .*$", r"    labels = input_ids.clone()")],
    tasks=("language model", "sequence to sequence"),
)
fault(
    "everything_is_ignored",
    "DK307",
    "the labels are masked where they should be kept",
    [(r"attention_mask == 0, -100", r"input_ids >= 0, -100")],
    [
        (
            r"torch\.where\(attention_mask\.bool\(\), input_ids, -100\)",
            r"torch.where(attention_mask > 1, input_ids, -100)",
        )
    ],
)
fault(
    "one_label_for_all",
    "DK307 DK310",
    "an index is wrong, so every sample has the label of the first one",
    [(r'"(labels?|target)": self\.(label|target)\[index\]', r'"\1": self.\2[0]')],
    [(r'"label": self\.step\[index\]', r'"label": self.step[0]')],
)
fault(
    "labels_of_other_samples",
    "DK310",
    "inputs are sorted or shuffled, and the labels are not",
    [(r'"(labels?|target|rating|mask)": (\(?)self\.(\w+)\[index\]', r'"\1": \2self.\3[(index * 7 + 3) % len(self)]')],
    [(r'"label": self\.step\[index\]', r'"label": self.step[index - 5]')],
)
fault(
    "softmax_before_cross_entropy",
    "DK308",
    "probabilities are given to a loss that applies softmax itself",
    [(r"^(\s+)return F\.cross_entropy\(logits, (label|target|batch)", r"\1logits = logits.softmax(dim=1)\n\g<0>")],
    [(r"return self\.head\((x|pooled)\)$", r"return self.head(\1).softmax(dim=-1)")],
    tasks=(*_CLASSES, "segment images"),
    modules=r"head",
    lines=r"F\.cross_entropy",
)
fault(
    "sigmoid_before_its_loss",
    "DK308",
    "a sigmoid before a loss that applies it itself",
    [
        (
            r"F\.binary_cross_entropy_with_logits\(logits(\.squeeze\(1\))?,",
            r"F.binary_cross_entropy_with_logits(torch.sigmoid(logits\1),",
        )
    ],
    lines=r"F\.binary_cross_entropy",
)
fault(
    "logits_to_nll_loss",
    "DK316",
    "logits are given to nll_loss, which expects logarithms of probabilities",
    [(r"F\.cross_entropy\((logits, \w+(?:\[.*\]\.to\(device\))?)(?:, label_smoothing=0\.1)?\)", r"F.nll_loss(\1)")],
)
fault(
    "labels_of_minus_one_and_one",
    "DK316",
    "labels are -1 and 1, and the loss expects 0 and 1",
    [(r"^        self\.target = \(value > 0\)\.float\(\)$", r"        self.target = (value > 0).float() * 2 - 1")],
    [(r"(> 127\)\.float\(\))", r"\1 * 2 - 1"), (r"(F\.binary)", r"\1")],
)
fault(
    "validated_on_the_training_data",
    "DK311",
    "the validation data are a part of the training data",
    [
        (
            r"Data\((\d+), seed=1\), Data\(16, seed=2\)$",
            r"Data(\1, seed=1), torch.utils.data.Subset(Data(\1, seed=1), range(16))",
        )
    ],
    lines=r"_loader = |_data",
)
fault(
    "sorted_and_not_shuffled",
    "DK318",
    "the samples are in the order of their classes, and are not shuffled",
    [(r"(self\.label = )(torch\.randint\(.*\))$", r"\1\2.sort().values"), (r"shuffle=True", r"shuffle=False")],
    lines=r"train_loader =",
)
fault(
    "columns_not_standardised",
    "DK319",
    "columns in different units are not standardised",
    [(r"self\.inputs = \(raw - self\.mean\) / self\.std", r"self.inputs = raw * 1000")],
    modules=r".",
)
fault(
    "label_among_the_inputs",
    "",
    "a column of the inputs is the target",
    [
        (
            r"^        (self\.target = value.*|self\.target = \(.*|self\.target = torch.bucketize.*)$",
            r"        \1\n        self.inputs[:, 0] = self.target",
        )
    ],
)
fault(
    "batch_statistics_in_the_features",
    "DK305",
    "features are normalised over the batch instead of over themselves",
    [
        (
            r"^(\s+)return self\.head\((\w+)\)(.*)$",
            r"\1\2 = (\2 - \2.mean(dim=0, keepdim=True)) / (\2.std(dim=0, keepdim=True) + 1e-5)\n\1return self.head(\2)\3",
        )
    ],
    [(r"\.softmax\(dim=-1\)\)$", r".softmax(dim=0))")],
    tasks=("classify images", "classify text", "classify a table", "regress a table", "forecast", "language model"),
    modules=r"head|dropout",
)
fault(
    "input_multiplied_by_zero",
    "DK306 DK105 DK107 DK106",
    "an input is switched off by an option that was left on",
    [(r'(torch\.cat\(\[batch\["state"\]), batch\["goal"\]', r'\1, 0 * batch["goal"]')],
    [(r'self\.state\(batch\["state"\]\)', r'self.state(0 * batch["state"])')],
    [(r'self\.vision\(batch\["image"\]\)', r'self.vision(0 * batch["image"])')],
    [(r"self\.items\(item\)", r"self.items(0 * item)")],
    [(r"edges @ self\.others", r"(0 * edges) @ self.others")],
)
fault(
    "same_entry_read_twice",
    "DK306",
    "an entry is read twice, and another one never",
    [(r'batch\["item"\]', r'batch["user"]')],
    [(r'batch\["goal"\]', r'batch["state"][:, :2]')],
    [(r"self\.item\[index\]", r"self.user[index]")],
)
fault(
    "nan_in_the_data",
    "DK313",
    "a missing value is stored as NaN",
    [(r"^        self\.(inputs|nodes|state|values|sound) = .*$", r'\g<0>\n        self.\1[3:, ..., 0] = float("nan")')],
)
fault(
    "augmentation_not_applied_to_the_target",
    "",
    "pictures are mirrored at random, and their masks are not",
    [(r'^        return \{"image": image, "mask"', r"        image = image.flip(-1) if index % 2 else image\n\g<0>")],
)
fault(
    "channels_in_another_order_in_validation",
    "",
    "validation pictures are BGR",
    [(r"^        image = \(image - MEAN", r"        image = image.flip(0) if len(self) == 16 else image\n\g<0>")],
)
