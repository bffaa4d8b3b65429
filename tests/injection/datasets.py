"""The text of small data sets that can be learnt, for several kinds of programs each."""

from __future__ import annotations

import random


def images(chance: random.Random, classes: int = 4, size: int = 16) -> str:
    """Pictures of some classes, stored as bytes, normalised when they are read."""
    statistics = chance.choice(("[0.485, 0.456, 0.406] [0.229, 0.224, 0.225]", "[0.5, 0.5, 0.5] [0.25, 0.25, 0.25]"))
    mean, std = statistics.replace("] [", "]|[").split("|")
    scaled = chance.choice(("self.pixels[index].float() / 255", "self.pixels[index].to(torch.float32).div(255.0)"))
    return f"""
MEAN = torch.tensor({mean})[:, None, None]
STD = torch.tensor({std})[:, None, None]
CLASSES, SIZE = {classes}, {size}


class Data(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.label = torch.randint(CLASSES, (count,), generator=generator)
        patterns = torch.rand(CLASSES, 3, 4, 4, generator=torch.Generator().manual_seed(0))
        coarse = 0.7 * patterns[self.label] + 0.3 * torch.rand(count, 3, 4, 4, generator=generator)
        picture = F.interpolate(coarse, size=SIZE, mode="bilinear")
        self.pixels = (picture * 255).to(torch.uint8)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, index):
        image = {scaled}
        image = (image - MEAN) / STD
        return {{"image": image, "label": self.label[index]}}
"""


def words(chance: random.Random, vocabulary: int = 40, length: int = 12) -> str:
    """Sequences that count upwards in steps, of different lengths, with a special token where the start was.

    Those of training and validation start at odd and at even numbers, so that none is in both.
    """
    sized = chance.choice(("PAD", "0"))
    return f"""
VOCABULARY, LENGTH, PAD = {vocabulary}, {length}, 0


class Data(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.step = torch.randint(1, 4, (count,), generator=generator)
        start = 2 * torch.randint((VOCABULARY - 3) // 2, (count,), generator=generator) + seed % 2
        self.ids = 3 + (start[:, None] + self.step[:, None] * torch.arange(LENGTH)) % (VOCABULARY - 3)
        self.length = torch.randint(LENGTH // 2, LENGTH + 1, (count,), generator=generator)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {{"ids": self.ids[index][: self.length[index]], "label": self.step[index] - 1}}


def padded(rows):
    width = max(len(row["ids"]) for row in rows)
    input_ids = torch.full((len(rows), width), {sized})
    attention_mask = torch.zeros(len(rows), width, dtype=torch.long)
    for number, row in enumerate(rows):
        input_ids[number, : len(row["ids"])] = row["ids"]
        attention_mask[number, : len(row["ids"])] = 1
    return input_ids, attention_mask
"""


def words_to_continue(chance: random.Random, **sizes: int) -> str:
    """The same, with the ids as labels and the padding ignored."""
    masked = chance.choice(
        (
            "labels = input_ids.masked_fill(attention_mask == 0, -100)",
            "labels = torch.where(attention_mask.bool(), input_ids, -100)",
        )
    )
    return (
        words(chance, **sizes)
        + f"""

def collate(rows):
    input_ids, attention_mask = padded(rows)
    {masked}
    return {{"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}}
"""
    )


def words_with_a_class(chance: random.Random, **sizes: int) -> str:
    """The same, with the length of the step as the class."""
    return (
        words(chance, **sizes)
        + """

def collate(rows):
    input_ids, attention_mask = padded(rows)
    label = torch.stack([row["label"] for row in rows])
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": label}
"""
    )


def series(chance: random.Random, length: int = 24, ahead: int = 4, channels: int = 2) -> str:
    """Sums of waves, the past and what comes next; each series is scaled by the statistics of the training data."""
    return f"""
PAST, AHEAD, CHANNELS = {length}, {ahead}, {channels}


class Data(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        time = torch.arange(PAST + AHEAD) / 8
        phase = torch.rand(count, 1, CHANNELS, generator=generator) * 6.28
        speed = 1 + torch.rand(count, 1, CHANNELS, generator=generator)
        noise = 0.05 * torch.randn(count, PAST + AHEAD, CHANNELS, generator=generator)
        self.values = torch.sin(time[None, :, None] * speed + phase) + noise
        self.mean, self.std = self.values.mean((0, 1)), self.values.std((0, 1))

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        values = (self.values[index] - self.mean) / (self.std + 1e-6)
        return {{"past_values": values[:PAST], "future_values": values[PAST:]}}
"""


def table(chance: random.Random, columns: int = 6, classes: int = 0) -> str:
    """Columns of numbers with different units, standardised, and a number or a class that depends on them."""
    target = "self.target = (value > 0).float()" if classes == 2 else "self.target = value"
    if classes > 2:
        target = f"self.target = torch.bucketize(value, torch.linspace(-1, 1, {classes - 1}))"
    return f"""
COLUMNS = {columns}


class Data(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        scale = torch.tensor([1.0, 10.0, 0.1, 5.0, 2.0, 50.0] * 4)[:COLUMNS]
        raw = torch.randn(count, COLUMNS, generator=generator) * scale + scale
        self.mean, self.std = raw.mean(0), raw.std(0)
        self.inputs = (raw - self.mean) / self.std
        weights = torch.randn(COLUMNS, generator=torch.Generator().manual_seed(0))
        value = torch.tanh(self.inputs @ weights) + 0.1 * torch.randn(count, generator=generator)
        {target}

    def __len__(self):
        return len(self.target)

    def __getitem__(self, index):
        return {{"inputs": self.inputs[index], "target": self.target[index]}}
"""


def episodes(chance: random.Random, image: bool, chunk: int = 4, padded: bool = False) -> str:
    """Frames of a robot: a state, a goal that a picture shows, and a chunk of the next actions in centimetres."""
    draws_image = (
        """
        self.pixels = torch.zeros(count, 3, 16, 16, dtype=torch.uint8) + 60
        for number, (x, y) in enumerate((8 + 4 * self.goal).round().long().clamp(1, 14).tolist()):
            self.pixels[number, :, y - 1 : y + 2, x - 1 : x + 2] = 220
"""
        if image
        else ""
    )
    read = (
        """
        image = (self.pixels[index].float() / 255 - 0.5) / 0.25
        frame["image"] = image"""
        if image
        else """
        frame["goal"] = self.goal[index]"""
    )
    pad = (
        """
        frame["action_is_pad"] = torch.arange(CHUNK) >= self.left[index]
        frame["action"] = frame["action"].masked_fill(frame["action_is_pad"][:, None], 0.0)"""
        if padded
        else ""
    )
    return f"""
STATE, ACTION, CHUNK = 4, 3, {chunk}


class Data(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.state = torch.randn(count, STATE, generator=generator)
        self.goal = torch.rand(count, 2, generator=generator) * 2 - 1
        move = (self.goal - 0.3 * self.state[:, :2])[:, None] * torch.linspace(1, 0.4, CHUNK)[:, None]
        grip = (self.goal[:, :1] > 0).float()[:, None].expand(-1, CHUNK, -1)
        self.action = torch.cat([move * torch.tensor([5.0, 2.0]) + 1.0, grip], -1)
        self.left = torch.randint(2, CHUNK + 1, (count,), generator=generator){draws_image}

    def __len__(self):
        return len(self.state)

    def __getitem__(self, index):
        frame = {{"state": self.state[index], "action": self.action[index]}}{read}{pad}
        return frame


statistics = Data(256, seed=0).action.flatten(0, 1)
ACTION_MEAN, ACTION_STD = statistics.mean(0), statistics.std(0)
"""
