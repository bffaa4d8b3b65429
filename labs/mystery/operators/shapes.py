"""Faults of shapes, dtypes and layouts."""

from __future__ import annotations

from labs.mystery.operators.operator import POLICY, Edit, Operator

SHAPES = (
    Operator(
        "patches_reshaped",
        "shapes",
        2,
        "lab05",
        "tower",
        "outputs",
        "The policy trains, but it reaches for places where nothing is.",
        "The map of patches is reshaped where its axes must be swapped, so each row mixes numbers of many patches.",
        (
            Edit(
                POLICY,
                "self.patchify(image).flatten(2).transpose(1, 2)",
                "self.patchify(image).reshape(len(image), 16, -1)",
            ),
        ),
    ),
    Operator(
        "image_axes",
        "shapes",
        2,
        "lab05",
        "pixels",
        "outputs",
        "A tower that was trained elsewhere sees almost nothing in these images.",
        "The axes of the image are in another order than the tower's: height and width are swapped.",
        (Edit(POLICY, "image.permute(0, 3, 1, 2)", "image.permute(0, 3, 2, 1)"),),
    ),
    Operator(
        "image_viewed",
        "shapes",
        2,
        "lab05",
        "pixels",
        "outputs",
        "The loss falls slowly, and colours do not matter to the policy.",
        "The image is reshaped to channels first where its axes must be moved: the three channels are mixed.",
        (Edit(POLICY, "image.permute(0, 3, 1, 2).float()", "image.float().reshape(-1, 3, IMAGE_SIZE, IMAGE_SIZE)"),),
    ),
    Operator(
        "vocabulary_short",
        "shapes",
        1,
        "DK006",
        "text",
        "checkpoint",
        "Some instructions raise an error, and old checkpoints do not load.",
        "The embedding has one row too few, so the last word of the vocabulary has none.",
        (
            Edit(
                POLICY,
                "nn.Embedding(len(VOCABULARY), config.$width)",
                "nn.Embedding(len(VOCABULARY) - 1, config.$width)",
            ),
            Edit(POLICY, "vocab_size=len(VOCABULARY),", "vocab_size=len(VOCABULARY) - 1,"),
        ),
    ),
    Operator(
        "joined_width",
        "shapes",
        1,
        "DK001",
        "fusion",
        "outputs",
        "The first batch raises an error about shapes.",
        "The layer expects fewer features than are joined in front of it.",
        (
            Edit(POLICY, "self.first = nn.Linear(3 * config.$width, 2", "self.first = nn.Linear(2 * config.$width, 2"),
            Edit(
                POLICY, "self.join = nn.Linear(2 * config.$width, config", "self.join = nn.Linear(config.$width, config"
            ),
        ),
    ),
    Operator(
        "broadcast_gripper",
        "shapes",
        2,
        "DK002",
        "head",
        "outputs",
        "The motions are learnt, the gripper never closes, and its loss stops at a plateau.",
        "The gripper's score is (B, 1) and its target (B,): their product is (B, B), every frame with every other.",
        (Edit(POLICY, "logit = self.gripper(feature).squeeze(-1)  # (B,)", "logit = self.gripper(feature)"),),
    ),
    Operator(
        "stray_statistics",
        "shapes",
        2,
        "DK005",
        "scaler",
        "checkpoint",
        "The actions are right where the policy was trained and wrong where its checkpoint is loaded.",
        "The statistics are plain attributes and not buffers, so a checkpoint does not hold them.",
        (
            Edit(
                POLICY,
                '        self.register_buffer("mean", mean)\n        self.register_buffer("std", std)',
                "        self.mean = mean\n        self.std = std",
            ),
            Edit(
                POLICY,
                '        self.register_buffer("low", low)\n        self.register_buffer("span", span)',
                "        self.low = low\n        self.span = span",
            ),
        ),
    ),
    Operator(
        "position_dropped",
        "shapes",
        2,
        "DK008",
        "tower",
        "outputs",
        "The policy knows which block is there, but not where.",
        "The position of a patch is not added, so the tower cannot tell places apart and the parameter has no effect.",
        (Edit(POLICY, "        patches = patches + self.position\n", ""),),
    ),
    Operator(
        "chunk_layout",
        "shapes",
        2,
        "lab34",
        "head",
        "outputs",
        "A checkpoint that worked before makes the arm jump between its joints.",
        "The head's output is cut into numbers first and steps second, so the values of a chunk are in other places.",
        (
            Edit(
                POLICY,
                "return self.out(feature).unflatten(-1, (self.horizon, ACTION_DIM))",
                "return self.out(feature).unflatten(-1, (ACTION_DIM, self.horizon)).mT",
            ),
            Edit(
                POLICY,
                "both = self.out(feature).unflatten(-1, (self.horizon, 2 * ACTION_DIM))",
                "both = self.out(feature).unflatten(-1, (2 * ACTION_DIM, self.horizon)).mT",
            ),
        ),
    ),
    Operator(
        "double_images",
        "shapes",
        1,
        "DK004",
        "pixels",
        "outputs",
        "The first batch raises an error about dtypes.",
        "The images are float64, and the parameters of the tower are float32.",
        (Edit(POLICY, "image.permute(0, 3, 1, 2).float()", "image.permute(0, 3, 1, 2).double()"),),
    ),
)
