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


# Class weights that are inverted


def _train(criterion, target, model, batch=32, steps=24, **expect):
    """Every batch holds rows of one data set, of which the weights were computed."""

    def loop(model, optimizer):
        for number in range(steps):
            rows = torch.arange(number * batch, (number + 1) * batch) % len(target)
            optimizer.zero_grad()
            criterion(model(torch.randn(batch, 4)), target[rows]).backward()  # DK316
            optimizer.step()

    expect = {"severity": "warning", **expect}
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1), "loop": loop, "expect": expect}


def _classes(*shares, size=768):
    return torch.multinomial(torch.tensor(shares), size, replacement=True)


def positives_over_negatives_of_several_tags():
    target = (torch.rand(768, 6) < torch.tensor([0.3, 0.12, 0.1, 0.08, 0.2, 0.06])).float()
    positives = target.sum(0)
    criterion = nn.BCEWithLogitsLoss(pos_weight=positives / (len(target) - positives))
    return _train(criterion, target, nn.Linear(4, 6), message="positives / negatives")


def share_of_positives_in_each_channel():
    target = (torch.rand(384, 3, 4, 4) < torch.tensor([0.31, 0.04, 0.12]).view(3, 1, 1)).float()
    criterion = nn.BCEWithLogitsLoss(pos_weight=target.mean((0, 2, 3)).view(3, 1, 1))
    model = nn.Sequential(nn.Linear(4, 48), nn.Unflatten(1, (3, 4, 4)))
    return _train(criterion, target, model, steps=12, message="for class 1")


def one_weight_of_rare_positives():
    target = (torch.rand(1024, 1) < 0.13).float()
    criterion = nn.BCEWithLogitsLoss(pos_weight=target.sum() / (1 - target).sum())
    return _train(criterion, target, nn.Linear(4, 1), steps=32, message="`pos_weight` of 0.1")


def counts_of_classes_as_weights():
    target = _classes(0.45, 0.2, 0.15, 0.12, 0.08)
    criterion = nn.CrossEntropyLoss(weight=torch.bincount(target).float())
    return _train(criterion, target, nn.Linear(4, 5), message="proportional to the number of labels")


def normalised_counts_of_classes_in_a_likelihood():
    target = _classes(0.55, 0.33, 0.12)
    counts = torch.bincount(target).float()
    criterion = nn.NLLLoss(weight=counts / counts.mean())
    model = nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(1))
    return _train(criterion, target, model, message="`nll_loss`")


def counts_of_two_classes():
    target = _classes(0.17, 0.83, size=1024)
    criterion = nn.CrossEntropyLoss(weight=torch.bincount(target) / len(target))
    return _train(criterion, target, nn.Linear(4, 2), steps=32)


def counts_of_classes_in_one_large_batch():
    target = _classes(0.6, 0.25, 0.15, size=400)
    weight = torch.bincount(target) / 400

    def loss_fn(model, batch):
        return F.cross_entropy(model(batch["x"]), batch["target"], weight=weight)  # DK316

    batch = {"x": torch.randn(400, 4), "target": target}
    return {"model": nn.Linear(4, 3), "batch": batch, "loss_fn": loss_fn, "expect": {"severity": "warning"}}
