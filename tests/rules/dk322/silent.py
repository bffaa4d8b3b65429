"""Images that become sequences in the ways that are meant, and what is no image."""

import torch
from torch import nn
from torch.nn import functional as F

SIDE = 4
UNDECIDED = "No sequence was seen whose rows divide the values of an image"


class Policy(nn.Module):
    """A sequence made of an image (B, C, H, W) through a transformer; `cut` is what makes it."""

    def __init__(self, cut, width):
        super().__init__()
        self.cut = cut
        self.embed = nn.Linear(width, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 2)

    def forward(self, images):
        return self.head(self.encoder(self.embed(self.cut(images))).mean(1))


def _program(cut, shape=(4, 3, 16, 16), width=3 * SIDE * SIDE, model=None, images=None, **expect):
    images = torch.randn(shape) if images is None else images
    batch = {"images": images, "action": torch.randn(len(images), 2)}

    def loss_fn(model, batch):
        return F.mse_loss(model(batch["images"]), batch["action"])

    return {"model": model or Policy(cut, width), "batch": batch, "loss_fn": loss_fn, "expect": expect}


class Convolution(nn.Module):
    def __init__(self, kernel=SIDE, stride=SIDE, padding=0, stem=False):
        super().__init__()
        self.stem = nn.Conv2d(3, 3, 3, padding=1) if stem else nn.Identity()
        self.patches = nn.Conv2d(3, 48, kernel, stride, padding)

    def forward(self, images):
        return self.patches(self.stem(images)).flatten(2).transpose(1, 2)


def convolution():
    return _program(Convolution())


def non_square_patches_of_a_convolution():
    return _program(Convolution((2, 8), (2, 8)))


def overlapping_patches():
    return _program(Convolution(6, 4, 1), not_examined=UNDECIDED)


def patches_behind_a_stem():
    return _program(Convolution(stem=True), not_examined=UNDECIDED)


def unfold_and_transpose():
    return _program(lambda images: F.unfold(images, SIDE, stride=SIDE).transpose(1, 2))


def windows_permuted():
    def cut(images):
        windows = images.unfold(2, SIDE, SIDE).unfold(3, SIDE, SIDE)
        return windows.permute(0, 2, 3, 1, 4, 5).reshape(len(images), -1, 3 * SIDE * SIDE)

    return _program(cut, (4, 3, 16, 24))


def channels_last_in_each_patch_and_shuffled():
    order = torch.randperm(16)

    def cut(images):
        split = images.unflatten(2, (-1, SIDE)).unflatten(4, (-1, SIDE))
        return split.permute(0, 2, 4, 3, 5, 1).reshape(len(images), 16, -1)[:, order]

    return _program(cut)


def four_patches_merged():
    """As in Qwen2-VL: four neighbours are next to one another, and become one row."""

    def cut(images):
        patches = F.pixel_unshuffle(images, SIDE // 2)
        return F.pixel_unshuffle(patches, 2).flatten(2).transpose(1, 2)

    return _program(cut)


def image_rolled():
    return _program(lambda images: F.unfold(images.roll((2, 2), (2, 3)), SIDE, stride=SIDE).transpose(1, 2))


def one_channel_in_each_patch():
    """As in ChannelViT; here with four channels and patches of 8 x 8, as large as four channels of 4 x 4."""

    def cut(images):
        windows = images.unfold(2, 8, 8).unfold(3, 8, 8)
        return windows.reshape(len(images), -1, 64)

    return _program(cut, (4, 4, 16, 16), width=64)


def lines_of_pixels():
    return _program(lambda images: images.flatten(1, 2), (2, 1, 16, 16), width=16)


def lines_of_one_channel():
    return _program(lambda images: images.flatten(1, 2), (2, 3, 48, 48), width=48)


def pixels_as_tokens():
    return _program(lambda images: images.flatten(2).transpose(1, 2), (4, 3, 8, 8), width=3, not_examined=UNDECIDED)


def channels_before_the_tokens():
    """Channels (B, D, N) of phases of the image, convolved along N; each has as many values as a patch."""

    class Phases(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.Identity()
            self.mix = nn.Conv1d(16, 8, 1)
            self.head = nn.Linear(8, 2)

        def forward(self, images):
            return self.head(self.mix(self.norm(F.pixel_unshuffle(images, 4).flatten(2))).mean(-1))

    return _program(None, (4, 1, 16, 16), model=Phases(), not_examined=UNDECIDED)


def image_resized_inside():
    def cut(images):
        small = F.interpolate(images, size=(8, 8), mode="bilinear", align_corners=False)
        return F.unfold(small, 2, stride=2).transpose(1, 2)

    return _program(cut, (4, 3, 16, 16), width=12)


def every_second_pixel():
    def cut(images):
        return F.unfold(images[:, :, ::2, ::2], SIDE, stride=SIDE).transpose(1, 2)

    return _program(cut, (4, 3, 16, 16), not_examined=UNDECIDED)


def images_normalised_each_by_itself():
    def cut(images):
        images = (images - images.mean((1, 2, 3), keepdim=True)) / images.std((1, 2, 3), keepdim=True)
        return F.unfold(images, SIDE, stride=SIDE).transpose(1, 2)

    return _program(cut, not_examined=UNDECIDED)


def recurrent_convolutions():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    return _program(None, model=model, not_examined=UNDECIDED)


def tower_without_a_graph():
    class Frozen(Policy):
        def forward(self, images):
            with torch.no_grad():
                tokens = self.embed(self.cut(images))
            return self.head(self.encoder(tokens).mean(1))

    cut = Convolution()
    return _program(cut, model=Frozen(cut, 48), not_examined=UNDECIDED)


def changed_in_place():
    def cut(images):
        images.sub_(0.5).div_(0.5)
        return F.unfold(images, SIDE, stride=SIDE).transpose(1, 2)

    return _program(cut)


def integers():
    def cut(images):
        return F.unfold(images / 255, SIDE, stride=SIDE).transpose(1, 2)

    images = torch.randint(256, (4, 3, 16, 16), dtype=torch.uint8)
    return _program(cut, images=images, not_examined="The images are integers")


def channels_last():
    def cut(images):
        return F.unfold(images.permute(0, 3, 1, 2), SIDE, stride=SIDE).transpose(1, 2)

    return _program(cut, (4, 16, 16, 3), not_examined="The batch has no images (B, C, H, W).")


def video():
    def cut(images):
        return F.unfold(images.flatten(0, 1), SIDE, stride=SIDE).transpose(1, 2).unflatten(0, (4, 2)).mean(1)

    return _program(cut, (4, 2, 3, 16, 16), not_examined="The batch has no images (B, C, H, W).")


def text_beside_the_image():
    """The first sequence of the pass is the text's, and it has as many tokens as the image has patches."""

    class WithText(Policy):
        def __init__(self):
            super().__init__(Convolution(), 48)
            self.words = nn.Embedding(9, 16)

        def forward(self, images):
            words = self.words(torch.arange(16).expand(len(images), -1) % 9)
            tokens = torch.cat([words, self.embed(self.cut(images))], dim=1)
            return self.head(self.encoder(tokens).mean(1))

    return _program(None, model=WithText())
