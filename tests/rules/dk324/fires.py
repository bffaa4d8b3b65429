"""Views that count axes to another place instead of moving them."""

import torch
import torch.nn.functional as F
from torch import nn

from image_loop import loop_over_images


def _program(model, x, **expect):
    return {
        "model": model,
        "batch": {"x": x},
        "loss_fn": lambda model, batch: model(batch["x"]).square().mean(),
        "expect": {"severity": "warning", **expect},
    }


class _Steps(nn.Module):
    """A convolution over time, and a layer that reads each time step."""

    def __init__(self, rearrange):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv1d(3, 8, 3, padding=1), nn.BatchNorm1d(8), nn.Linear(8, 2)
        self.rearrange = rearrange

    def forward(self, x):
        return self.head(self.rearrange(self.norm(self.conv(x)).relu()))


def channels_of_a_convolution_after_time():
    def rearrange(x):
        b, c, length = x.shape
        return x.view(b, length, c)  # DK324

    return _program(_Steps(rearrange), torch.randn(4, 3, 12), message="the 8 features of `conv`", count=1)


def one_size_a_multiple_of_the_other():
    return _program(_Steps(lambda x: x.reshape(len(x), 16, 8)), torch.randn(4, 3, 16))  # DK324


def mean_over_time_before_the_layer():
    return _program(_Steps(lambda x: x.reshape(-1, 12, 8).mean(1)), torch.randn(4, 3, 12))  # DK324


def images_with_the_channels_last():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 2)

        def forward(self, images):
            b, h, w, c = images.shape
            x = images.reshape(b, c, h, w).float() / 255  # DK324
            return self.head(self.conv(x).mean((2, 3)))

    return _program(Net(), torch.randint(0, 255, (4, 16, 16, 3), dtype=torch.uint8), message="(4, 16, 16, 3)")


def series_with_the_features_last():
    return _program(
        nn.Sequential(_View(5, 12), nn.Conv1d(5, 4, 3)),
        torch.randn(4, 12, 5),
        message="from (4, 12, 5) to (4, 5, 12)",
    )


class _View(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.sizes = sizes

    def forward(self, x):
        return x.view(len(x), *self.sizes)  # DK324


class _Attention(nn.Module):
    def __init__(self, split=None, merge=None, width=16, heads=4):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.split, self.merge = heads, split, merge

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.split is None:
            q, k, v = (one.view(b, t, self.heads, -1).transpose(1, 2) for one in (q, k, v))
        else:
            q, k, v = (self.split(one) for one in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, t, d) if self.merge is None else self.merge(y))


def heads_merged_without_the_transpose():
    def merge(y):
        b, h, t, d = y.shape
        return y.reshape(b, t, h * d)  # DK324

    return _program(_Attention(merge=merge), torch.randn(2, 7, 16), message="as the 16 features of `qkv`")


def as_many_tokens_as_a_multiple_of_the_heads():
    return _program(_Attention(merge=lambda y: y.contiguous().view(len(y), 8, 16)), torch.randn(2, 8, 16))  # DK324


def heads_split_without_the_transpose():
    return _program(_Attention(split=lambda y: y.reshape(2, 4, 8, 4)), torch.randn(2, 8, 16))  # DK324


def heads_merged_after_attention_by_hand():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(x).view(b, t, 3, 4, 4).permute(2, 0, 3, 1, 4)
            weights = (q @ k.transpose(-2, -1) / 2).softmax(-1)
            return x + self.out((weights @ v).flatten(1).view(b, t, 16))  # DK324

    return _program(Attention(), torch.randn(2, 7, 16))


def heads_merged_after_einsum():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
            self.out = nn.Linear(16, 16)

        def forward(self, x):
            q, k, v = (layer(x).unflatten(-1, (4, 4)) for layer in (self.q, self.k, self.v))
            weights = torch.einsum("bthd,bshd->bhts", q, k).softmax(-1)
            y = torch.einsum("bhts,bshd->bhtd", weights, v)
            return self.out(y.reshape(x.shape))  # DK324

    return _program(Attention(), torch.randn(2, 6, 16), message="of `v`")


def feature_map_as_tokens():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 16, 4, stride=4)
            self.attend = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x):
            x = self.conv(x)
            x = x.view(len(x), -1, 16)  # DK324
            return self.attend(x, x, x)[0]

    return _program(Net(), torch.randn(2, 3, 32, 24), message="from (2, 16, 8, 6) to (2, 48, 16)")


def tokens_as_a_feature_map():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.conv = nn.Linear(5, 16), nn.Conv2d(16, 4, 3)

        def forward(self, x):
            return self.conv(self.layer(x).view(-1, 16, 8, 6))  # DK324

    return _program(Net(), torch.randn(2, 48, 5), message="dimension 1 of the result as the 16 features of `layer`")


def feature_map_compared_with_a_codebook():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.codes = nn.Conv2d(3, 8, 4, stride=4), nn.Embedding(10, 8)

        def forward(self, x):
            z = self.encode(x)
            flat = z.reshape(-1, 8)  # DK324
            return flat - self.codes(torch.cdist(flat, self.codes.weight).argmin(1)).detach()

    return _program(Net(), torch.randn(2, 3, 24, 16))


def state_of_two_layers():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.GRU(5, 6, 2, batch_first=True), nn.Linear(12, 3)

        def forward(self, x):
            _, state = self.rnn(x)
            return self.head(state.view(len(x), -1))  # DK324

    return _program(
        Net(), torch.randn(4, 7, 5), message="dimension 0 of the result as the 4 samples, which are in dimension 1"
    )


def outputs_with_time_first():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(5, 6), nn.Linear(42, 3)

        def forward(self, x):
            y, _ = self.rnn(x.transpose(0, 1))
            return self.head(y.reshape(len(x), -1))  # DK324

    return _program(Net(), torch.randn(4, 7, 5), message="samples")


def _segmentation(loss_fn):
    model = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1))
    return {
        "model": model,
        "batch": {"x": torch.randn(2, 3, 8, 6), "classes": torch.randint(0, 5, (2, 8, 6))},
        "loss_fn": loss_fn,
        "expect": {
            "severity": "warning",
            "message": "`cross_entropy` reads dimension 1 of the result as the 5 features of module `0`",
        },
    }


def scores_of_each_pixel_in_the_loss():
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["x"]).view(-1, 5), batch["classes"].view(-1))  # DK324

    return _segmentation(loss_fn)


def scores_of_each_token_in_the_loss():
    def loss_fn(model, batch):
        scores = model(batch["x"])
        return F.cross_entropy(scores.view(4, 9, 7), batch["labels"])  # DK324

    batch = {"x": torch.randn(4, 7, 3), "labels": torch.randint(0, 9, (4, 7))}
    expect = {"message": "reads dimension 1"}
    return {"model": nn.Linear(3, 9), "batch": batch, "loss_fn": loss_fn, "expect": expect}


def video_frames_without_the_permute():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            return self.conv(x.view(-1, 3, 8, 8))  # DK324

    return _program(Net(), torch.randn(2, 3, 5, 8, 8), message="from (2, 3, 5, 8, 8) to (10, 3, 8, 8)")


def in_a_live_loop():
    def loop(model, optimizer):
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(4, 3, 12)).square().mean().backward()
            optimizer.step()

    model = _Steps(lambda x: x.view(len(x), 12, 8))  # DK324
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.01), "loop": loop}


def in_half_precision():
    def loss_fn(model, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(batch["x"]).float().square().mean()

    return _program(_Steps(lambda x: x.view(len(x), 12, 8)), torch.randn(4, 3, 12)) | {"loss_fn": loss_fn}  # DK324


def view_of_an_image_in_a_data_set():
    arguments = loop_over_images(lambda image: image.view(3, 12, 10), ahead=0)  # DK324
    return {**arguments, "expect": {"severity": "warning", "message": "from (12, 10, 3) to (3, 12, 10)"}}


def view_of_an_image_in_a_batch_that_is_read_ahead():
    arguments = loop_over_images(lambda image: image.reshape(image.shape[-1], *image.shape[:2]))  # DK324
    return {**arguments, "expect": {"severity": "warning", "module": "0", "fix": "permute(2, 0, 1)"}}
