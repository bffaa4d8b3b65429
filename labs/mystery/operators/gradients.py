"""Faults of gradients: what is trained, and what reaches it."""

from __future__ import annotations

from labs.mystery.operators.operator import POLICY, TRAIN, Edit, Operator

GRADIENTS = (
    Operator(
        "blocks_in_a_list",
        "gradients",
        2,
        "DK101",
        "tower",
        "checkpoint",
        "The tower hardly improves, and checkpoints lack half of it.",
        "The blocks are in a plain list, so they are not registered: no optimizer and no checkpoint holds them.",
        (Edit(POLICY, "nn.ModuleList([$Block(width) for _ in range(2)])", "[$Block(width) for _ in range(2)]"),),
    ),
    Operator(
        "tower_detached",
        "gradients",
        2,
        "DK105",
        "policy",
        "gradients",
        "The loss falls to a plateau, and the image tower is the same as on the first day.",
        "The image feature is detached, so no gradient reaches the tower.",
        (
            Edit(
                POLICY,
                "$seen = self.$vision($prepare_image(image))",
                "$seen = self.$vision($prepare_image(image)).detach()",
            ),
        ),
    ),
    Operator(
        "text_detached",
        "gradients",
        2,
        "DK105",
        "policy",
        "gradients",
        "The policy never learns a word, although every word reaches the loss.",
        "The instruction's feature is detached, so no gradient reaches its encoder.",
        (
            Edit(
                POLICY,
                "$told = self.$language(input_ids, attention_mask)",
                "$told = self.$language(input_ids, attention_mask).detach()",
            ),
        ),
    ),
    Operator(
        "part_not_optimized",
        "gradients",
        2,
        "DK101",
        "optimizer",
        "optimizer",
        "A part of the policy has gradients and never changes.",
        "Some parameters are in no group of the optimizer.",
        (
            Edit(
                TRAIN,
                "matrices = [one for one in policy.parameters() if one.ndim > 1]",
                "matrices = [one for one in policy.parameters() if one.ndim == 2]",
            ),
            Edit(
                TRAIN,
                "rest = [one for one in policy.parameters() if id(one) not in slow]",
                "rest = [*policy.$language.parameters(), *policy.$head.parameters()]",
                (("    slow = {id(one) for one in tower}\n", ""),),
            ),
            Edit(
                TRAIN,
                "        policy.parameters(),\n        lr=10",
                "        policy.$head.parameters(),\n        lr=10",
            ),
        ),
    ),
    Operator(
        "parameters_twice",
        "gradients",
        1,
        "DK104",
        "optimizer",
        "optimizer",
        "The trainer cannot be created: the optimizer refuses its groups.",
        "Some parameters are in both groups of the optimizer.",
        (
            Edit(
                TRAIN,
                "vectors = [one for one in policy.parameters() if one.ndim <= 1]",
                "vectors = list(policy.parameters())",
            ),
            Edit(
                TRAIN,
                "rest = [one for one in policy.parameters() if id(one) not in slow]",
                "rest = list(policy.parameters())",
                (("    slow = {id(one) for one in tower}\n", ""),),
            ),
        ),
    ),
    Operator(
        "frozen_language",
        "gradients",
        2,
        "DK113",
        "policy",
        "checkpoint",
        "Every instruction is answered as it was before the training.",
        "The instruction's encoder is frozen when the policy is built, and nothing says that it should be.",
        (
            Edit(
                POLICY,
                "        self.$language = $Text(config)\n",
                "        self.$language = $Text(config).requires_grad_(False)\n",
            ),
        ),
    ),
    Operator(
        "frozen_head",
        "gradients",
        2,
        "DK117",
        "policy",
        "checkpoint",
        "The loss falls a little in the first steps and then stays.",
        "The head is frozen with its random values.",
        (
            Edit(
                POLICY,
                "        self.$head = $Head(config)\n",
                "        self.$head = $Head(config).requires_grad_(False)\n",
            ),
        ),
    ),
    Operator(
        "residual_dropped",
        "gradients",
        2,
        "DK109",
        "tower",
        "outputs",
        "The deeper the tower, the less its first layers learn.",
        "A block replaces its input where it must add to it.",
        (
            Edit(POLICY, "patches = patches + self.attend(query", "patches = self.attend(query"),
            Edit(POLICY, "maps = maps + F.relu(self.inner(maps))", "maps = F.relu(self.inner(maps))"),
            Edit(POLICY, "return mixed + self.drop(hidden)", "return self.drop(hidden)"),
        ),
    ),
    Operator(
        "no_activation",
        "gradients",
        2,
        "DK116",
        "fusion",
        "outputs",
        "A wider layer in the middle makes no difference at all.",
        "There is no activation between two linear layers, so together they are one linear layer.",
        (
            Edit(POLICY, "hidden = F.gelu(self.first(joined))", "hidden = self.first(joined)"),
            Edit(POLICY, "maps = F.gelu(self.first(image))", "maps = self.first(image)"),
            Edit(
                POLICY,
                "hidden = F.gelu(self.grow(self.norm_out(patches)))",
                "hidden = self.grow(self.norm_out(patches))",
            ),
            Edit(POLICY, "hidden = F.gelu(self.inner(mixed) + $told)", "hidden = self.inner(mixed) + $told"),
        ),
    ),
    Operator(
        "optimizer_of_a_copy",
        "gradients",
        1,
        "DK102",
        "loop",
        "training",
        "The loss does not change at all, at any learning rate.",
        "The optimizer is made for a copy of the policy, so its updates change the copy.",
        (
            Edit(
                TRAIN,
                "self.optimizer = $make_optimizer(policy, recipe)",
                "self.optimizer = $make_optimizer(copy.deepcopy(policy), recipe)",
                (("import copy\n", "import copy\n"),),
            ),
        ),
    ),
)
