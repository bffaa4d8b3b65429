"""Gradients and parameters: what is trained, and by what."""

from __future__ import annotations

from functools import partial

from injection.operators import operator

fault = partial(operator, "gradients")
_HEAD = r"head|classifier|lm_head|actor|mlp"

fault(
    "optimizer_without_the_head",
    "DK101",
    "the optimizer gets the parameters of the backbone alone",
    [
        (
            r"model\.parameters\(\)(?=,|\])",
            r"[p for n, p in model.named_parameters() if not n.startswith(('head', 'classifier', 'lm_head', 'action_out'))]",
        ),
    ],
    [(r"model\.parameters\(\) if", r"[q for n, q in model.named_parameters() if 'head' not in n] if")],
    modules=_HEAD,
    lines=r"^optimizer = |model\.(named_)?parameters\(\)",
)
fault(
    "head_replaced_after_the_optimizer",
    "DK102 DK101",
    "a layer is replaced when the optimizer exists already",
    [
        (r"(self\.head = )", r"\1"),
        (r"^(optimizer = (?s:.*?)\n)(?=scheduler|average|\n)", r"\1model.head = copy.deepcopy(model.head)\n"),
    ],
    modules=_HEAD,
)
fault(
    "everything_frozen",
    "DK103 DK105 DK113",
    "the backbone should be frozen, and everything is",
    [(r"^model = build_model\(\)\.to\(device\)$", r"\g<0>\nmodel.requires_grad_(False)")],
    lines=r"loss\)?\.backward|/ ACCUMULATE\)\.backward|^optimizer",
)
fault(
    "parameters_given_twice",
    "DK104",
    "the head is in two groups of the optimizer's parameters",
    [(r"^(optimizer = [\w.]+\()model\.parameters\(\)", r"\1[*model.parameters(), *list(model.parameters())[-2:]]")],
    lines=r"^optimizer",
    modules=_HEAD,
)
fault(
    "features_detached",
    "DK105",
    "features are detached before the layers that follow",
    [
        (
            r"^(\s+)(\w+) = (self\.(?:backbone|stem|embed|words|conv1|rnn|vision|encoder|squeeze)\(.*\))$",
            r"\1\2 = \3.detach()",
        )
    ],
    [(r"^(\s+)(pooled|hidden|x) = (self\.activation\(self\.\w+\(.*\)\)|hidden.*)$", r"\1\2 = (\3).detach()")],
)
fault(
    "features_without_gradient",
    "DK105",
    "a part that should be trained runs under no_grad",
    [
        (
            r"^(\s+)(\w+ = self\.(?:backbone|stem|embed|words|conv1|rnn|decoder|encoder|fc1)\(.*\)(?:\.\w+)*)$",
            r"\1with torch.no_grad():\n\1    \2",
        )
    ],
    [(r"^(\s+)(x = self\.activation\(self\.(?:norm1|fc1|conv1)\(.*\))$", r"\1with torch.no_grad():\n\1    \2")],
)
fault(
    "through_a_list",
    "DK105",
    "a tensor is rebuilt from Python numbers on the way",
    [(r"^(\s+)return self\.head\((\w+)\)", r"\1\2 = torch.tensor(\2.tolist(), device=\2.device)\n\g<0>")],
)
fault(
    "loss_rebuilt_from_its_number",
    "DK119 DK105",
    "the loss is rebuilt from its value before backward",
    [
        (
            r"^(\s+)((?:with torch\.autocast.*\n\s+)?loss = compute_loss\(model, batch\))$",
            r"\1\2\n\1loss = torch.tensor(loss.item(), requires_grad=True)",
        )
    ],
)
fault(
    "layers_in_a_list",
    "DK101 DK106",
    "layers are held by a Python list, so the model has no parameters of theirs",
    [(r"nn\.ModuleList\((\[.*\])\)", r"\1")],
    lines=r"self\.(blocks|layers)",
)
fault(
    "last_layer_skipped",
    "DK106",
    "the loop over the layers stops before the last one",
    [(r"for (\w+) in self\.(blocks|layers):", r"for \1 in self.\2[:-1]:")],
)
fault(
    "layer_never_called",
    "DK106",
    "a layer is created and never called",
    [(r"^(\s+)x = (?:x \+ )?self\.activation\(self\.fc2\(x\)\)\n", r"")],
    [(r"self\.norm\((self\.[^\n]*?\(x\))\)", r"\1")],
    [(r"self\.norm([12])\((self\.conv[12]\(x\))\)", r"\2")],
    modules=r"fc2|norm",
)
fault(
    "everything_starts_at_zero",
    "DK107 DK115",
    "every parameter starts at zero, as in a linear regression",
    [
        (
            r"^    return (\w+)\(([^)]*)\)$",
            r"    model = \1(\2)\n    for parameter in model.parameters():\n        nn.init.zeros_(parameter)\n    return model",
        )
    ],
    modules=r".",
)
fault(
    "sigmoids_in_a_deep_stack",
    "DK109",
    "the layers of a deep stack end in a sigmoid, and the skip connection is lost",
    [
        (
            r"^(\s+)h = self\.activation\(self\.linear\(self\.norm\(x\)\)\)\n\s+return x \+ h",
            r"\1return torch.sigmoid(self.linear(x))",
        )
    ],
    modules=r"layers|embed",
)
fault(
    "initialised_with_unit_variance",
    "DK120 DK110 DK312",
    "weights are drawn with a deviation of one",
    [
        (
            r"^    return (\w+)\(([^)]*)\)$",
            r"    model = \1(\2)\n    for parameter in model.parameters():\n        if parameter.ndim > 1:\n            nn.init.normal_(parameter)\n    return model",
        )
    ],
    [(r"nn\.init\.normal_\(module\.weight, std=0\.02\)", r"nn.init.normal_(module.weight)")],
    modules=r".",
)
fault(
    "biases_far_below_zero",
    "DK111 DK107",
    "a bias starts so far below zero that its ReLU never opens",
    [
        (r"(self\.fc1 = )", r"\1"),
        (r"^(\s+)(self\.activation = nn\.ReLU\(.*\))$", r"\1\2\n\1nn.init.constant_(self.fc1.bias, -20.0)"),
    ],
    modules=r"fc1|activation",
)
fault(
    "activation_left_out",
    "DK116",
    "there is no activation between two linear layers",
    [(r"nn\.Linear\((\w+), (\w+)\), nn\.(?:GELU|SiLU|ReLU)\(\), ", r"nn.Linear(\1, \2), ")],
    [(r"^        nn\.(?:GELU|SiLU|ReLU|Tanh)\(\),\n        nn\.Linear\(width, 1\)", r"        nn.Linear(width, 1)")],
    [(r"x = self\.activation\((self\.fc[12]\(x(?:\[:, -1\])?\))\)", r"x = \1")],
    modules=r"fc1|fc2|head|mlp|tokens|channels",
)
fault(
    "head_frozen_at_random",
    "DK117",
    "the head is frozen with the backbone, as it was drawn",
    [
        (
            r"^model = build_model\(\)\.to\(device\)$",
            r'\g<0>\nfor name, parameter in model.named_parameters():\n    if "head" in name or "classifier" in name:\n        parameter.requires_grad = False',
        )
    ],
    modules=_HEAD,
)
fault(
    "prefix_of_the_checkpoint",
    "DK118 DK114",
    "a checkpoint has a prefix, and strict=False hides that nothing matches",
    [
        (
            r"^model = build_model\(\)\.to\(device\)$",
            r'torch.manual_seed(9)\npretrained = {"module." + name: value for name, value in build_model().state_dict().items()}\n\g<0>\nmodel.load_state_dict(pretrained, strict=False)',
        )
    ],
)
fault(
    "first_layer_frozen",
    "DK113 DK117",
    "the embedding or stem is frozen, which no one intended",
    [(r"^model = build_model\(\)\.to\(device\)$", r"\g<0>\nnext(model.parameters()).requires_grad = False")],
    modules=r"embed|words|conv1|backbone|stem|fc1|vision|encoder|users|shared|down1|^0\b",
)
fault(
    "skip_connection_lost",
    "",
    "a residual block returns its branch alone",
    [(r"= x \+ self\.", r"= self.")],
    [(r"return self\.activation\(x \+ h\)", r"return self.activation(h)")],
    [(r"return x \+ h$", r"return h")],
)
fault(
    "custom_backward_is_wrong",
    "DK108",
    "a hand-written activation has a wrong derivative",
    [
        (
            r"^class (?=\w+\(nn\.Module\))",
            r"class Swish(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        ctx.save_for_backward(x)\n        return x * torch.sigmoid(x)\n\n    @staticmethod\n    def backward(ctx, gradient):\n        (x,) = ctx.saved_tensors\n        return gradient * torch.sigmoid(x) * (1 - torch.sigmoid(x))\n\n\n\g<0>",
        ),
        (r"self\.activation\((?=self\.)", r"Swish.apply("),
    ],
    lines=r"Swish|def (backward|forward)\(ctx|gradient \*|return x \* torch",
)
fault(
    "frozen_batch_norm_still_counts",
    "DK112",
    "frozen batch norm stays in training mode, so its statistics change",
    [(r"^(\s+)(self\.norm1 = nn\.BatchNorm2d\(\w+\))", r"\1\2.requires_grad_(False)")],
    [(r"^(\s+)(self\.norm = nn\.BatchNorm1d\(\w+\))", r"\1\2.requires_grad_(False)")],
    modules=r"norm",
)
