"""For each operator a snippet, and for each mutant of it the lines that are new, as written."""

from __future__ import annotations

from typing import NamedTuple


class Example(NamedTuple):
    """`mutants` holds what each mutant adds; an empty text is a line that is gone."""

    operator: str
    source: str
    mutants: list[str]
    starter: str = ""


HEADER = "import torch\nfrom torch import Tensor\n\n\n"

EXAMPLES = [
    Example(
        "drop_statement",
        'def f(x, model):\n    """Doc."""\n    y = x + 1\n    x = y * 2  # twice\n'
        "    model.eval()\n    print(y)\n    return x\n",
        ["    pass  # twice", "    pass"],
    ),
    Example(
        "drop_loop", "for x in range( 3 ):\n    go(x)\nwhile busy():\n    wait()\n", ["for x in ():", "while False:"]
    ),
    Example(
        "unwrap_block",
        "with torch.no_grad():  # cheap\n    go()\nwith open(path) as file:\n    read(file)\n",
        ["if True:  # cheap"],
    ),
    Example(
        "swap_statements",
        "def f():\n    optimizer.zero_grad()\n    # the gradient\n    loss.backward()\n    return 1\n",
        ["    loss.backward()\n    # the gradient\n    optimizer.zero_grad()"],
    ),
    Example(
        "negate_condition",
        "if a > 0:\n    go()\nx = 1 if not b else 2\ny = [z for z in zs if ok(z)]\n",
        ["if a <= 0:", "x = 1 if b else 2", "y = [z for z in zs if not (ok(z))]"],
    ),
    Example("drop_condition", "if a > 0:\n    go()\n", ["if True:", "if False:"]),
    Example("drop_operand", "x = (a or b) and c\n", ["x = (a or b)", "x = c", "x = (a) and c", "x = (b) and c"]),
    Example("swap_boolean", "x = a and (b)\n", ["x = a or (b)"]),
    Example("move_comparison", "x = y > 0\nif a == b:\n    go()\n", ["x = y >= 0", "x = y <= 0"]),
    Example(
        "move_pattern",
        'keep = name.startswith("head.")\nskip = "norm" in name\n',
        ["keep = True", "keep = False", "skip = True", "skip = False"],
    ),
    Example(
        "drop_keyword",
        "y = f(x, a=1,\n      b=2)\n",
        ["y = f(x, b=2)", "y = f(x, a=1)"],
    ),
    Example("drop_decorator", "@torch.no_grad()\ndef f(x):\n    return x\n", [""]),
    Example("swap_arguments", "y = f(a, (b, c), 1)\n", ["y = f((b, c), a, 1)", "y = f(a, 1, (b, c))"]),
    Example("swap_arguments", "y = smooth_l1_loss(a, b)\nz = g(1, 2)\n", []),
    Example("repeat_argument", "y = f(a, b.c, 1)\n", ["y = f(a, a, 1)", "y = f(b.c, b.c, 1)"]),
    Example(
        "other_parameter",
        "def f(x: Tensor, y: Tensor | None, n: int):\n    return x + n if y is None else y\n",
        ["    return y + n if y is None else y", "    return x + n if y is None else x"],
    ),
    Example(
        "move_axis",
        "y = x.mean(dim=-1)\nz = x.flatten(1)\nw = torch.cat([a, b], 0)\nv = f(3)\n",
        [
            "y = x.mean(dim=0)",
            "y = x.mean(dim=-2)",
            "z = x.flatten(2)",
            "z = x.flatten(0)",
            "w = torch.cat([a, b], 1)",
            "w = torch.cat([a, b], -1)",
        ],
    ),
    Example(
        "move_index",
        "y = x[:, 0]\nz = x[..., GRIPPER]\nw = d['a']\n",
        ["y = x[:, 1]", "y = x[:, -1]", "z = x[..., GRIPPER - 1]"],
    ),
    Example(
        "move_slice",
        "y = x[:, 1:]\nz = x[:STEPS]\n",
        ["y = x[:, 2:]", "y = x[:, 0:]", "y = x[:, :]", "z = x[:STEPS + 1]", "z = x[:STEPS - 1]", "z = x[:]"],
    ),
    Example(
        "swap_reduction",
        'y = x.mean()\nz = F.l1_loss(a, b, reduction="none")\n',
        ["y = x.sum()", 'z = F.l1_loss(a, b, reduction="mean")'],
    ),
    Example(
        "swap_arithmetic",
        'y = a + b * 2\nz = "a" + b\ntotal += loss\n',
        ["y = a - b * 2", "y = a + b / 2", "total -= loss"],
    ),
    Example("drop_term", "y = (a - b) * 2\n", ["y = (a - b)", "y = (a) * 2", "y = (b) * 2"]),
    Example("drop_total", "total += loss\n", ["total = loss"]),
    Example("drop_sign", "y = -x\nz = a[~mask]\nw = -1\n", ["y = x", "z = a[mask]"]),
    Example(
        "move_number",
        "LIMIT = 1.5\nSTEPS = 3\ny = x[2]\nz = x.sum(dim=1)\nw = f(-1)\n",
        ["STEPS = 4", "STEPS = 2", "w = f(0)", "w = f(-2)", "LIMIT = (1.5 * 2)", "LIMIT = 0.0"],
    ),
    Example("flip_flag", "y = f(x, bias=False)\nwhile True:\n    go()\n", ["y = f(x, bias=True)"]),
    Example(
        "rescale_constant",
        "SIZE = 4\nA, B = SIZE, 2\ny = f(SIZE)\nz = g(SIZE=1)\n",
        ["A, B = (SIZE * 2), 2", "y = f((SIZE * 2))"],
    ),
    Example("drop_detach", "y = (a + b).detach() * 2\n", ["y = (a + b) * 2"]),
    Example("drop_clone", "best = weight.detach().clone()\n", ["best = weight.detach()"]),
    Example("swap_mode", "policy.eval()\nimage.eval_size()\n", ["policy.train()"]),
    Example(
        "add_mode",
        'def step(policy: Policy, batch):\n    """One."""\n    return policy(batch)\n',
        ["    policy.eval()", "    policy.train()"],
    ),
    Example(
        "add_detach",
        f"{HEADER}def f(x: Tensor, target: Tensor) -> Tensor:\n"
        "    wanted = target * 2\n    y = x * 2\n    return y - wanted\n",
        ["    y = (x * 2).detach()", "    return (y - wanted).detach()"],
    ),
    Example(
        "add_no_grad",
        HEADER + "def f(x: Tensor) -> dict:\n    return {'x': x}\n\n\ndef g(x: Tensor) -> Tensor:\n    return x\n",
        ["@torch.no_grad()"],
    ),
    Example(
        "add_clone",
        "def tie(self):\n    self.out.weight = self.table.weight\n    self.size = self.table.size\n",
        ["    self.out.weight = self.table.weight.clone()"],
    ),
    Example(
        "drop_mask",
        "y = x.masked_fill(mask, 0.0)\nz = torch.where(m, a, b)\nw = error[~is_pad]\n",
        ["y = x", "z = a", "z = b", "w = error"],
    ),
    Example(
        "constant_mask",
        HEADER + "y = mean(error, is_pad)\n",
        ["y = mean(error, torch.zeros_like(is_pad))", "y = mean(error, torch.ones_like(is_pad))"],
    ),
    Example("drop_clamp", "y = x.clamp(0, 1)\nz = torch.clamp(x, max=1)\n", ["y = x", "z = x"]),
    Example(
        "add_clamp",
        HEADER + "def f(x: Tensor) -> Tensor:\n    return x * 2\n",
        ["    return (x * 2).clamp(-1.0, 1.0)"],
    ),
    Example(
        "drop_conversion",
        "y = stats.normalize(action)[0]\nz = x.log()\n",
        ["y = action[0]", "z = x"],
    ),
    Example("swap_pair", "y = stats.unnormalize(a)\n", ["y = stats.normalize(a)"]),
    Example(
        "narrow_parameters",
        "o = AdamW(policy.parameters())\n",
        ["o = AdamW(list(policy.parameters())[1:])", "o = AdamW(list(policy.parameters())[:-1])"],
    ),
    Example(
        "widen_parameters",
        "for p in policy.tower.parameters():\n    freeze(p)\n",
        ["for p in policy.parameters():"],
    ),
    Example(
        "narrow_loop",
        "for x in frames:\n    go(x)\n",
        ["for x in __import__('itertools').islice(frames, 1, None):"],
    ),
    Example("drop_filter", "y = [p for p in ps if p.ok]\n", ["y = [p for p in ps if True]"]),
    Example(
        "drop_element",
        'y = [a,  # one\n     b]\nz = ("a", "b")\nw = (1, 2)\n',
        ["y = [b]", "y = [a]", 'z = ("b",)', 'z = ("a",)'],
    ),
    Example("swap_elements", "y = [a, b]\nc, d = y\n", ["y = [b, a]"]),
    Example(
        "change_error",
        'raise ValueError("no")\nraise RuntimeError\n',
        ['raise RuntimeError("no")', "raise ValueError"],
    ),
    Example("widen_except", "try:\n    go()\nexcept KeyError:\n    pass\n", ["except Exception:"]),
    Example("drop_except", "try:\n    go()\nexcept KeyError:\n    pass\n", ["except ():"]),
    Example(
        "fix_only_in_training",
        "def f(x: Tensor):\n    return x * 2\n",
        [
            "_fixed = f\ndef f(x: Tensor):\n    return x\n"
            'f = __import__("labs.authoring.mutation.partial_fix", fromlist=["only_in_training"])'
            ".only_in_training(_fixed, f)\ndel _fixed"
        ],
        starter="def f(x: Tensor):\n    return x\n",
    ),
    Example("fix_only_in_training", "def f(x):\n    return x * 2\n", [], starter="def f(x):\n    return x\n"),
    Example(
        "fix_only_for_batches",
        "def f(x: Tensor):\n    return x  # same\n",
        [],
        starter="def f(x: Tensor):\n    return x\n",
    ),
    Example(
        "fix_only_every_tenth_call",
        "class A:\n    def f(self):\n        return 2\n",
        [
            "    _fixed = f\n    def f(self):\n        return 1\n"
            '    f = __import__("labs.authoring.mutation.partial_fix", fromlist=["only_every_tenth_call"])'
            ".only_every_tenth_call(_fixed, f)\n    del _fixed"
        ],
        starter="class A:\n    def f(self):\n        return 1\n",
    ),
]

YAML_EXAMPLES = [
    Example(
        "move_value",
        "seed: 1  # fixed\nlr: 1e-3\nfast: true\nname: base\n",
        ["seed: 2  # fixed", "seed: 0  # fixed", "lr: 0.002", "lr: 0.0", "fast: false"],
    ),
    Example("drop_entry", "a: 1\nb:\n  c: 2 # two\n  d: 3\n", ["", "", "", ""]),
    Example("drop_item", "order:\n  - one # first\n  - two\n", ["", ""]),
    Example("swap_items", "order:\n  - one # first\n  - two\n", ["  - two # first\n  - one"]),
]
