"""Pictures: segmentation, detection, mixing, and losses that choose their negatives within the batch."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from healthy.program import STEPS, Program, program

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class DoubleConv(nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.double_conv(x)


class UNet(nn.Module):
    def __init__(self, n_channels: int = 3, n_classes: int = 1) -> None:
        super().__init__()
        self.inc, self.down = DoubleConv(n_channels, 8), DoubleConv(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, kernel_size=2, stride=2)
        self.conv, self.outc = DoubleConv(16, 8), nn.Conv2d(8, n_classes, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.inc(x)
        x2 = self.up(self.down(F.max_pool2d(x1, 2)))
        return self.outc(self.conv(torch.cat([x1, x2], dim=1)))


@program
def segmentation_with_dice_and_a_gradient_scaler() -> Program:
    model = UNet().to(DEVICE)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, momentum=0.9, foreach=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

    def draw() -> dict[str, Tensor]:
        image = torch.rand(4, 3, 16, 16)
        return {"image": image, "mask": (image.mean(1) > 0.5).long()}

    def dice_loss(probability: Tensor, target: Tensor) -> Tensor:
        inter = 2 * (probability * target).sum(dim=(-1, -2))
        sets = probability.sum(dim=(-1, -2)) + target.sum(dim=(-1, -2))
        return 1 - ((inter + 1e-6) / (torch.where(sets == 0, inter, sets) + 1e-6)).mean()

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        images = batch["image"].to(device=DEVICE, dtype=torch.float32)
        true_masks = batch["mask"].to(device=DEVICE, dtype=torch.float32)
        masks_pred = model(images).squeeze(1)
        return F.binary_cross_entropy_with_logits(masks_pred, true_masks) + dice_loss(masks_pred.sigmoid(), true_masks)

    def train(self: Program) -> None:
        for _ in range(STEPS):
            with torch.autocast("cpu", dtype=torch.float16):
                loss = self.loss(self.draw())
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

    return Program(model, draw, loss_fn, optimizer, train)


class Bottleneck(nn.Module):
    """A residual block whose last norm starts at zero, and which is left out at random in training."""

    def __init__(self, planes: int, drop: float) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(planes, planes, 3, padding=1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False), nn.BatchNorm2d(planes)
        nn.init.zeros_(self.bn2.weight)
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        if self.training and np.random.rand() < self.drop:
            return x
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


@program
def residual_network_with_mixup_and_random_depth() -> Program:
    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 12, 3, padding=1)
            self.layers = nn.Sequential(Bottleneck(12, 0.0), Bottleneck(12, 0.2), Bottleneck(12, 0.5))
            self.fc = nn.Linear(12, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.layers(self.stem(x)).mean((2, 3)))

    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])

    def draw() -> tuple[Tensor, Tensor]:
        return (torch.rand(16, 3, 8, 8) - mean[:, None, None]) / std[:, None, None], torch.randint(10, (16,))

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        lam = np.random.beta(1.0, 1.0)
        index = torch.randperm(x.size(0)).to(x.device)
        outputs = model(lam * x + (1 - lam) * x[index])
        criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        return lam * criterion(outputs, y) + (1 - lam) * criterion(outputs, y[index])

    model = ResNet()
    return Program(model, draw, loss_fn, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True))


class EmbeddingNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convnet = nn.Sequential(nn.Conv2d(1, 8, 5), nn.PReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.fc = nn.Sequential(nn.Linear(8 * 16, 32), nn.PReLU(), nn.Linear(32, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.convnet(x))


def digits() -> tuple[Tensor, Tensor]:
    """Four pictures of each of four classes."""
    label = torch.arange(4).repeat_interleave(4)
    return torch.randn(16, 1, 12, 12) + label.view(-1, 1, 1, 1) / 4, label


@program
def triplets_with_the_hardest_negative() -> Program:
    """The farthest of the same class, and the nearest of the others: those of the same class are set to infinity."""

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        data, label = batch
        embedding = F.normalize(model(data))
        dist = torch.cdist(embedding, embedding)
        same = label.unsqueeze(0) == label.unsqueeze(1)
        hardest_positive = dist.masked_fill(~same, float("-inf")).max(dim=1).values
        hardest_negative = dist.masked_fill(same, float("inf")).min(dim=1).values
        return F.relu(hardest_positive - hardest_negative + 0.3).mean()

    return Program(EmbeddingNet(), digits, loss_fn)


@program
def nearest_neighbours_apart_from_oneself() -> Program:
    """Soft nearest neighbours: the distance to oneself is infinite, so its weight is 0."""

    class Metric(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = EmbeddingNet()

        def forward(self, x: Tensor) -> Tensor:
            z = self.net(x)
            d = torch.cdist(z, z).pow(2)
            d = d.clone()
            d.fill_diagonal_(float("inf"))
            return F.softmax(-d, dim=1)

    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        data, label = batch
        same = (label[:, None] == label[None, :]).float()
        return -torch.log((model(data) * same).sum(1) + 1e-8).mean()

    return Program(Metric(), digits, loss_fn)


@program
def repulsion_of_the_nearest_points() -> Program:
    """A regulariser over the k nearest others of a point cloud, outside the model."""

    def loss_fn(model: nn.Module, points: Tensor) -> Tensor:
        made = model(points)  # (B, N, 3)
        gaps = (made.unsqueeze(2) - made.unsqueeze(1)).pow(2).sum(-1)
        gaps[:, torch.arange(gaps.size(1)), torch.arange(gaps.size(1))] = float("inf")
        nearest = gaps.topk(4, dim=-1, largest=False).values
        chamfer = torch.cdist(made, points).min(dim=2).values.mean()
        return chamfer + F.relu(0.1 - nearest.sqrt()).mean()

    decoder = nn.Sequential(nn.Linear(3, 32), nn.LeakyReLU(0.2), nn.Linear(32, 3))
    return Program(decoder, lambda: torch.rand(4, 20, 3), loss_fn)


@program
def detector_that_mines_hard_negatives() -> Program:
    """Three background anchors for each object; the loss of objects is set to -inf before the ranking."""

    class SSD(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU())
            self.loc, self.conf = nn.Conv2d(16, 2 * 4, 3, padding=1), nn.Conv2d(16, 2 * 5, 3, padding=1)

        def forward(self, images: list[Tensor]) -> tuple[Tensor, Tensor]:
            x = self.base(torch.stack(images))
            loc, conf = (layer(x).permute(0, 2, 3, 1) for layer in (self.loc, self.conf))
            return loc.reshape(x.size(0), -1, 4), conf.reshape(x.size(0), -1, 5)

    def draw() -> tuple[list[Tensor], list[dict[str, Tensor]]]:
        images, targets = [torch.randn(3, 8, 8) for _ in range(4)], []
        for _ in range(4):
            labels = torch.where(torch.rand(32) < 0.2, torch.randint(1, 5, (32,)), 0)
            labels[0] = 1
            targets.append({"boxes": torch.randn(32, 4), "labels": labels})
        return images, targets

    def loss_fn(model: nn.Module, batch: tuple[list[Tensor], list[dict[str, Tensor]]]) -> Tensor:
        loc, conf = model(batch[0])
        labels = torch.stack([target["labels"] for target in batch[1]])
        boxes = torch.stack([target["boxes"] for target in batch[1]])
        positive = labels > 0
        cls_loss = F.cross_entropy(conf.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        negative_loss = cls_loss.clone()
        negative_loss[positive] = -float("inf")
        _, order = negative_loss.sort(1, descending=True)
        background = order.sort(1)[1] < 3 * positive.sum(1, keepdim=True)
        n = max(1, int(positive.sum()))
        boxes_loss = F.smooth_l1_loss(loc[positive], boxes[positive], reduction="sum")
        return (boxes_loss + cls_loss[positive].sum() + cls_loss[background].sum()) / n

    return Program(SSD(), draw, loss_fn)


@program
def clips_flattened_over_time_with_as_many_frames_as_clips() -> Program:
    """Frames go through the picture encoder as (B T), and a batch has as many clips as each has frames."""

    class Video(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cnn = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.GroupNorm(2, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
            self.temporal, self.fc = nn.GRU(8, 16, batch_first=True), nn.Linear(16, 5)

        def forward(self, clip: Tensor) -> Tensor:
            b, t = clip.shape[:2]
            features = self.cnn(clip.reshape(b * t, *clip.shape[2:])).view(b, t, -1)
            return self.fc(self.temporal(features)[0].mean(1))

    draw = lambda: (torch.randn(4, 4, 3, 9, 9), torch.randint(5, (4,)))  # noqa: E731
    return Program(Video(), draw, lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]))


@program
def mean_teacher_whose_weight_ramps_up_from_zero() -> Program:
    """The consistency loss has weight 0 in the first step and grows with the epoch."""
    student = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student, self.teacher = student, copy.deepcopy(student)
            for param in self.teacher.parameters():
                param.detach_()
            self.global_step = 0

        def rampup(self) -> float:
            return float(np.exp(-5.0 * (1.0 - min(self.global_step, 40) / 40) ** 2)) if self.global_step else 0.0

    model = Both()

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        logits = model.student(batch["x"] + 0.05 * torch.randn_like(batch["x"]))
        ema_logits = model.teacher(batch["x"] + 0.05 * torch.randn_like(batch["x"]))
        labelled = batch["y"] >= 0
        supervised = F.cross_entropy(logits[labelled], batch["y"][labelled])
        return supervised + 10.0 * model.rampup() * F.mse_loss(logits.softmax(1), ema_logits.softmax(1).detach())

    def train(self: Program) -> None:
        assert isinstance(self.optimizer, torch.optim.Optimizer)
        for _ in range(STEPS):
            loss = self.loss(self.draw())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            model.global_step += 1
            alpha = min(1 - 1 / (model.global_step + 1), 0.99)
            for ema_param, param in zip(model.teacher.parameters(), model.student.parameters(), strict=True):
                ema_param.data.mul_(alpha).add_(param.data, alpha=1 - alpha)

    def draw() -> dict[str, Tensor]:
        y = torch.randint(4, (16,))
        y[8:] = -1  # without a label
        return {"x": torch.randn(16, 10), "y": y}

    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
    return Program(model, draw, loss_fn, optimizer, train)
