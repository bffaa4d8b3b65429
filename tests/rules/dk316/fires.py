"""Losses that receive inputs or targets outside the range that they are defined for."""

import torch
import torch.nn.functional as F
from torch import nn


def _batch(target=None, classes=5):
    return {"x": torch.randn(6, 4), "target": torch.randint(0, classes, (6,)) if target is None else target}


def sigmoid_before_cross_entropy():
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["x"]), batch["target"])  # DK316

    model = nn.Sequential(nn.Linear(4, 5), nn.Sigmoid())
    return {"model": model, "batch": _batch(), "loss_fn": loss_fn, "expect": {"severity": "error", "message": "0.905"}}


def likelihood_of_logits():
    criterion = nn.NLLLoss()

    def loss_fn(model, batch):
        return criterion(model(batch["x"]), batch["target"])  # DK316

    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 5))
    return {"model": model, "batch": _batch(), "loss_fn": loss_fn, "expect": {"message": "`nll_loss` receives values"}}


def divergence_of_probabilities():
    def loss_fn(model, batch):
        student = F.softmax(model(batch["x"]), dim=-1)
        return F.kl_div(student, batch["target"], reduction="batchmean")  # DK316

    target = torch.randn(6, 5).softmax(-1)
    expect = {"message": "`kl_div` receives probabilities"}
    return {"model": nn.Linear(4, 5), "batch": _batch(target), "loss_fn": loss_fn, "expect": expect}


def _frames():
    lengths, labels = torch.full((3,), 9), torch.tensor([3, 2, 3])
    return {"x": torch.randn(9, 3, 4), "target": torch.randint(1, 5, (3, 3)), "lengths": lengths, "labels": labels}


def sequence_loss_of_logits():
    criterion = nn.CTCLoss()

    def loss_fn(model, batch):
        return criterion(model(batch["x"]), batch["target"], batch["lengths"], batch["labels"])  # DK316

    expect = {"message": "`ctc_loss` receives values"}
    return {"model": nn.Linear(4, 5), "batch": _frames(), "loss_fn": loss_fn, "expect": expect}


def sequence_loss_of_probabilities():
    def loss_fn(model, batch):
        given = model(batch["x"]).softmax(-1)
        lengths, labels = batch["lengths"], batch["labels"]
        each = F.ctc_loss(  # DK316
            log_probs=given, targets=batch["target"], input_lengths=lengths, target_lengths=labels, reduction="none"
        )
        return (each / labels).mean()

    expect = {"message": "`ctc_loss` receives probabilities"}
    return {"model": nn.Linear(4, 5), "batch": _frames(), "loss_fn": loss_fn, "expect": expect}


def characters_numbered_from_the_blank():
    criterion = nn.CTCLoss(blank=0, zero_infinity=True)
    words = [[0, 1, 2], [3, 0], [2, 1, 3]]

    def loss_fn(model, batch):
        given = model(batch["x"]).log_softmax(-1)
        return criterion(given, batch["target"], batch["lengths"], batch["labels"])  # DK316

    batch = _frames() | {
        "target": torch.tensor([character for word in words for character in word]),
        "labels": torch.tensor([len(word) for word in words]),
    }
    expect = {"severity": "error", "message": "2 labels of 2 sequences are 0, the blank"}
    return {"model": nn.Linear(4, 5), "batch": batch, "loss_fn": loss_fn, "expect": expect}


def padding_counted_by_the_lengths():
    def loop(model, optimizer):
        targets = torch.tensor([[1, 2, 3], [2, 4, 4], [1, 3, 2]])
        for _ in range(4):
            given = model(torch.randn(9, 3, 4)).log_softmax(-1)
            optimizer.zero_grad()
            lengths = torch.full((3,), 9), torch.full((3,), 3)
            loss = F.ctc_loss(given, targets, *lengths, reduction="sum", blank=4)  # DK316
            loss.backward()
            optimizer.step()

    model = nn.Linear(4, 5)
    expect = {"message": "2 labels of 1 sequence are 4"}
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.01), "loop": loop, "expect": expect}


def one_utterance_that_holds_the_blank():
    def loss_fn(model, batch):
        given = model(batch["x"]).log_softmax(-1)
        return F.ctc_loss(given, batch["target"], (9,), (3,), blank=2)  # DK316

    batch = {"x": torch.randn(9, 4), "target": torch.tensor([1, 2, 3])}
    expect = {"message": "1 label of 1 sequence is 2"}
    return {"model": nn.Linear(4, 5), "batch": batch, "loss_fn": loss_fn, "expect": expect}


def divergence_with_probabilities_as_log_target():
    def loss_fn(model, batch):
        student = model(batch["x"]).log_softmax(-1)
        return F.kl_div(student, batch["target"], reduction="batchmean", log_target=True)  # DK316

    target = torch.randn(6, 5).softmax(-1)
    return {"model": nn.Linear(4, 5), "batch": _batch(target), "loss_fn": loss_fn}


def divergence_with_logarithms_as_target():
    def loss_fn(model, batch):
        return F.kl_div(model(batch["x"]).log_softmax(-1), batch["target"], reduction="sum")  # DK316

    target = torch.randn(6, 5).log_softmax(-1)
    return {"model": nn.Linear(4, 5), "batch": _batch(target), "loss_fn": loss_fn}


def pixels_as_targets():
    class Autoencoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))

        def forward(self, image):
            logits = self.layers(image / 255)
            return {"loss": F.binary_cross_entropy_with_logits(logits, image)}  # DK316

    return {"model": Autoencoder(), "batch": {"image": torch.randint(256, (2, 1, 8, 8)).float()}}


def classes_of_minus_one_and_one():
    def loss_fn(model, batch):
        return F.binary_cross_entropy_with_logits(model(batch["x"]).squeeze(1), batch["target"])  # DK316

    target = torch.randint(0, 2, (6,)).float() * 2 - 1
    expect = {"message": "targets from -1 to 1"}
    return {"model": nn.Linear(4, 1), "batch": _batch(target), "loss_fn": loss_fn, "expect": expect}


def logits_of_a_teacher():
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["x"]), batch["target"])  # DK316

    batch = _batch(torch.randn(6, 5) * 3)
    return {"model": nn.Linear(4, 5), "batch": batch, "loss_fn": loss_fn, "expect": {"severity": "warning"}}


def several_classes_in_a_row():
    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["x"]), batch["target"])  # DK316

    target = torch.eye(5)[[0, 1, 2, 3, 4, 0]] + torch.eye(5)[[1, 2, 3, 4, 0, 1]]
    return {"model": nn.Linear(4, 5), "batch": _batch(target), "loss_fn": loss_fn, "expect": {"severity": "info"}}


def found_while_training():
    batch = _batch()

    def loop(model, optimizer):
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.nll_loss(model(batch["x"]), batch["target"])  # DK316
            loss.backward()
            optimizer.step()

    model = nn.Linear(4, 5)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1), "loop": loop}


def _focal(logits, target):
    p = torch.sigmoid(logits)
    here = target * (1 - p) ** 2 * F.logsigmoid(logits)  # DK316
    return -(here + (1 - target) * p**2 * F.logsigmoid(-logits)).mean()


def focal_loss_of_probabilities():
    model = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid(), nn.Flatten(0))
    return {
        "model": model,
        "batch": _batch(torch.tensor([0.0, 1, 0, 1, 1, 0])),
        "loss_fn": lambda model, batch: _focal(model(batch["x"]), batch["target"]),
        "expect": {"severity": "warning", "message": "between 0.5 and 0.73"},
    }


def score_of_a_discriminator_in_a_loop():
    log_sigmoid = nn.LogSigmoid()

    def loop(model, optimizer):
        for _ in range(4):
            optimizer.zero_grad()
            score = model(torch.randn(6, 4)).squeeze(1)
            (-log_sigmoid(score).mean()).backward()  # DK316
            optimizer.step()

    model = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(), nn.Linear(8, 1), nn.Sigmoid())
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), 0.1),
        "loop": loop,
        "expect": {"severity": "warning"},
    }
