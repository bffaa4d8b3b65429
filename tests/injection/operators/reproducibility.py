"""Reproducibility: random numbers that repeat, or that no seed controls."""

from __future__ import annotations

from functools import partial

from injection.operators import operator

fault = partial(operator, "reproducibility")

fault(
    "seeded_again_in_validation",
    "DK705",
    "the validation seeds the global generator",
    [(r"^    model\.eval\(\)$", r"    torch.manual_seed(0)\n    model.eval()")],
    lines=r"evaluate|manual_seed",
)
fault(
    "seeded_again_each_epoch",
    "DK705 DK703",
    "each epoch begins with the same seed",
    [(r"^        model\.train\(\)$", r"        torch.manual_seed(0)\n        model.train()")],
    lines=r"manual_seed",
)
fault(
    "seeded_for_each_sample",
    "DK705",
    "the data set seeds the global generator for each sample",
    [(r"^    def __getitem__\(self, index\):$", r"\g<0>\n        torch.manual_seed(index)")],
    lines=r"train_loader",
)
fault(
    "same_order_each_epoch",
    "DK703",
    "the order is shuffled by a sampler that draws the same order in each epoch",
    [
        (
            r"^train_loader = DataLoader\(train_data, batch_size=BATCH, shuffle=True",
            r"class Shuffled(torch.utils.data.Sampler):\n    def __len__(self):\n        return len(train_data)\n\n    def __iter__(self):\n        return iter(torch.randperm(len(train_data), generator=torch.Generator().manual_seed(0)).tolist())\n\n\ntrain_loader = DataLoader(train_data, batch_size=BATCH, sampler=Shuffled()",
        )
    ],
)
fault(
    "loader_seeded_each_epoch",
    "DK703 DK705",
    "the loader's generator is seeded again in each epoch",
    [
        (r"shuffle=True", r"shuffle=True, generator=torch.Generator().manual_seed(0)"),
        (r"^        model\.train\(\)$", r"        train_loader.generator.manual_seed(0)\n        model.train()"),
    ],
)
fault(
    "noise_without_a_seed",
    "DK701",
    "augmentation draws from a NumPy generator that has no seed",
    [
        (
            r'^        return \{"(image|inputs|nodes|sound|input_values)": (\S+),',
            r'        noise = torch.from_numpy(np.random.default_rng().normal(size=tuple(\2.shape))).float()\n        return {"\1": \2 + 0.1 * noise,',
        )
    ],
    [(r"self\.inputs\[index\]", r"self.inputs[index] + 0.1 * float(np.random.default_rng().normal())")],
    where="repeat",
)
fault(
    "noise_without_a_seed_in_the_model",
    "DK701",
    "the model draws noise from a NumPy generator without a seed",
    [
        (
            r"^(\s+)return self\.head\((\w+)\)",
            r"\1noise = np.random.default_rng().normal(size=tuple(\2.shape))\n\1\2 = \2 + 0.1 * torch.from_numpy(noise).float().to(\2.device)\n\g<0>",
        )
    ],
    where="repeat",
    modules=r".",
)
fault(
    "clock_as_a_seed",
    "DK701 DK705",
    "the loss draws noise from a generator that is seeded by the clock",
    [
        (
            r"^    return (F\.\w+\()(\w+), ",
            r'    clock = torch.Generator().manual_seed(__import__("time").time_ns() % 2**31)\n    \2 = \2 + 0.1 * torch.randn(\2.shape, generator=clock).to(device)\n    return \1\2, ',
        )
    ],
    where="repeat",
)
fault(
    "program_not_seeded",
    "DK701",
    "the program is not seeded",
    [(r"^torch\.manual_seed\(\d+\)\n", "torch.seed()\n")],
    where="repeat",
)
fault(
    "step_counter_outside_of_the_state",
    "DK704 DK005",
    "a weight that is annealed counts its steps in a plain attribute",
    [
        (
            r"^(\s+)(return self\.head\()(\w+)\)",
            r'\1self.calls = getattr(self, "calls", 0) + self.training\n\1\2\3 * min(1.0, 0.5 + self.calls / 20))',
        )
    ],
    modules=r".",
)
fault(
    "average_kept_outside_of_the_state",
    "DK704 DK005",
    "running statistics are plain attributes and are not saved",
    [
        (
            r"^(\s+)(return self\.head\()(\w+)\)",
            r'\1if self.training:\n\1    self.center = 0.9 * getattr(self, "center", 0.0) + 0.1 * \3.detach().mean()\n\1\2\3 - getattr(self, "center", 0.0))',
        )
    ],
    modules=r".",
)
fault(
    "factor_from_an_address",
    "DK701",
    "a factor depends on the address of an object",
    [(r"^(\s+)return self\.head\((\w+)\)", r"\1\2 = \2 * (1 + 0.01 * (id(\2) // 64 % 7))\n\g<0>")],
    where="repeat",
)
