"""Losses whose inputs look unusual and are correct."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def _program(loss, target=None, classes=5):
    batch = {"x": torch.randn(6, 4), "target": torch.randint(0, classes, (6,)) if target is None else target}
    return {
        "model": nn.Linear(4, classes),
        "batch": batch,
        "loss_fn": lambda model, batch: loss(model(batch["x"]), batch["target"]),
    }


def logits_and_class_ids():
    return _program(F.cross_entropy)


def policy_gradient_with_nll_loss():
    def loss(logits, actions):
        advantage = torch.linspace(-2, 2, len(actions))
        return F.nll_loss(logits.log_softmax(-1) * advantage[:, None], actions)

    return _program(loss)


def policy_gradient_with_weighted_one_hot_targets():
    return _program(F.cross_entropy, torch.eye(5)[[0, 1, 2, 3, 4, 0]] * torch.linspace(-2, 2, 6)[:, None])


def path_score_minus_its_partition():
    return _program(lambda scores, target: F.nll_loss(scores, target) + scores.logsumexp(1).mean())


def nll_loss_that_selects_values():
    return _program(lambda values, action: (F.nll_loss(-values, action, reduction="none") - 1).square().mean())


def likelihood_of_log_probabilities_of_a_checkpointed_head():
    def loss(logits, target):
        advantage = torch.linspace(-2, 2, len(target))[:, None]
        return F.nll_loss(checkpoint(lambda x: x.log_softmax(-1) * advantage, logits, use_reentrant=True), target)

    return _program(loss)


def _sequences(log_probabilities):
    batch = {"x": torch.randn(9, 3, 4), "target": torch.randint(1, 5, (3, 3))}
    lengths, labels = torch.tensor([9, 7, 8]), torch.tensor([3, 2, 3])

    def loss_fn(model, batch):
        return F.ctc_loss(log_probabilities(model(batch["x"])), batch["target"], lengths, labels, zero_infinity=True)

    return {"model": nn.Linear(4, 5), "batch": batch, "loss_fn": loss_fn}


def sequence_loss_of_log_probabilities():
    return _sequences(lambda logits: logits.log_softmax(-1))


def sequence_loss_of_posteriors_divided_by_the_prior():
    logarithms = torch.tensor([-0.5, -2.3, -2.3, -2.3, -2.3])
    return _sequences(lambda logits: logits.log_softmax(-1) - logarithms)


def _labels(targets, labels, blank=0, classes=5):
    targets, labels = torch.tensor(targets), torch.tensor(labels)
    batch = {"x": torch.randn(9, len(labels), 4), "target": targets, "labels": labels}
    criterion = nn.CTCLoss(blank=blank, zero_infinity=True)

    def loss_fn(model, batch):
        frames = torch.full_like(batch["labels"], 9)
        return criterion(model(batch["x"]).log_softmax(-1), batch["target"], frames, batch["labels"])

    return {"model": nn.Linear(4, classes), "batch": batch, "loss_fn": loss_fn}


def targets_padded_with_the_blank():
    return _labels([[1, 2, 3], [2, 0, 0], [1, 3, 0]], [3, 1, 2])


def joined_targets_without_the_blank():
    return _labels([1, 2, 3, 2, 1, 3], [3, 1, 2])


def characters_numbered_from_0_with_the_blank_last():
    return _labels([0, 1, 2, 3, 0, 0], [3, 1, 2], blank=4)


def utterances_without_labels():
    return _labels([[0, 0, 0], [2, 1, 0], [0, 0, 0]], [0, 2, 0])


def joined_targets_of_utterances_without_labels():
    return _labels([1, 2], [0, 2, 0])


def silence_marked_with_one_blank():
    return _labels([[0, 0], [2, 1], [4, 4]], [1, 2, 2])


def logarithm_of_smoothed_probabilities():
    return _program(lambda logits, target: F.nll_loss((logits.softmax(-1) + 0.1).log(), target))


def distillation_at_a_temperature():
    def loss(logits, teacher):
        soft = F.kl_div(F.log_softmax(logits / 2, -1), F.softmax(teacher / 2, -1), reduction="batchmean") * 4
        logs = F.kl_div(logits.log_softmax(-1), teacher.log_softmax(-1), reduction="batchmean", log_target=True)
        return soft + logs

    return _program(loss, torch.randn(6, 5))


def unknown_labels_masked_afterwards():
    def loss(logits, target):
        each = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        return (each * (target >= 0)).sum() / (target >= 0).sum()

    return _program(loss, torch.randint(-1, 2, (6, 5)).float())


def unknown_labels_without_weight():
    def loss(logits, target):
        return F.binary_cross_entropy_with_logits(logits, target, weight=(target != 255).float())

    return _program(loss, torch.tensor([0.0, 1.0, 255.0]).repeat(10).reshape(6, 5))


def discriminator_with_noisy_labels():
    return _program(F.binary_cross_entropy_with_logits, 0.7 + 0.5 * torch.rand(6, 5))


def mixed_up_targets_with_padded_rows():
    target = 0.3 * torch.eye(5)[[0, 1, 2, 3, 4, 0]] + 0.7 * torch.eye(5)[[1, 2, 3, 4, 0, 1]]
    target[4:] = 0
    return _program(F.cross_entropy, target)


def sigmoid_scaled_to_logits():
    return _program(lambda logits, target: F.cross_entropy(10 * logits.sigmoid(), target))


def dice_of_probabilities():
    def loss(logits, target):
        return 1 - 2 * (logits.sigmoid() * target).sum() / (logits.sigmoid() + target).sum()

    return _program(loss, torch.rand(6, 5).round())


def per_pixel_classes():
    batch = {"image": torch.randn(2, 3, 8, 8), "target": torch.randn(2, 4, 8, 8).softmax(1)}
    model = nn.Conv2d(3, 4, 3, padding=1)
    return {"model": model, "batch": batch, "loss_fn": lambda m, b: F.cross_entropy(m(b["image"]), b["target"])}


def _one_score(loss):
    target = torch.tensor([0.0, 1, 0, 1, 1, 0])
    return _program(lambda output, target: loss(output.squeeze(1), target), target, classes=1)


def focal_loss_of_logits():
    def loss(logits, target):
        p = logits.sigmoid()
        here = target * (1 - p) ** 2 * F.logsigmoid(logits)
        return -(here + (1 - target) * p**2 * F.logsigmoid(-logits)).mean()

    return _one_score(loss)


def rewards_between_0_and_1_compared_in_pairs():
    return _one_score(lambda score, _: -F.logsigmoid(score.sigmoid()[:3] - score.sigmoid()[3:]).mean())


def reward_between_0_and_1_at_a_temperature():
    return _one_score(lambda score, _: -F.logsigmoid(5.0 * score.sigmoid()).mean())


def logarithm_of_two_sigmoids_that_is_only_logged():
    def loss(score, target):
        assert F.logsigmoid(score.detach().sigmoid()).isfinite().all()
        return F.binary_cross_entropy_with_logits(score, target)

    return _one_score(loss)


def gate_of_a_gated_value():
    return _one_score(lambda score, target: (F.logsigmoid(score) * score.sigmoid() - target).square().mean())


# Class weights


def _train(criterion, target, batch=32, steps=32, classes=None):
    model = nn.Linear(4, classes or (target.shape[1] if target.ndim > 1 else int(target.max()) + 1))

    def loop(model, optimizer):
        for number in range(steps):
            rows = torch.arange(number * batch, (number + 1) * batch) % len(target)
            optimizer.zero_grad()
            criterion(model(torch.randn(batch, 4)), target[rows]).backward()
            optimizer.step()

    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1), "loop": loop}


def _classes(*shares, size=1024):
    return torch.multinomial(torch.tensor(shares), size, replacement=True)


def _tags():
    return (torch.rand(1024, 6) < torch.tensor([0.3, 0.12, 0.1, 0.08, 0.2, 0.06])).float()


def negatives_over_positives():
    target = _tags()
    positives = target.sum(0)
    return _train(nn.BCEWithLogitsLoss(pos_weight=(len(target) - positives) / positives), target)


def square_root_of_negatives_over_positives():
    target = _tags()
    positives = target.sum(0)
    return _train(nn.BCEWithLogitsLoss(pos_weight=((len(target) - positives) / positives).sqrt()), target)


def one_weight_that_balances():
    target = (torch.rand(1024, 1) < 0.13).float()
    return _train(nn.BCEWithLogitsLoss(pos_weight=(1 - target).sum() / target.sum()), target)


def one_weight_below_one_of_frequent_positives():
    target = (torch.rand(1024, 1) < 0.87).float()
    return _train(nn.BCEWithLogitsLoss(pos_weight=(1 - target).sum() / target.sum()), target)


def one_weight_chosen_for_precision():
    target = (torch.rand(1024, 1) < 0.2).float()
    return _train(nn.BCEWithLogitsLoss(pos_weight=torch.tensor([0.25])), target)


def equal_weights():
    return _train(nn.CrossEntropyLoss(weight=torch.full((4,), 0.37)), _classes(0.6, 0.2, 0.12, 0.08))


def inverse_counts():
    target = _classes(0.45, 0.2, 0.15, 0.12, 0.08)
    counts = torch.bincount(target).float()
    return _train(nn.CrossEntropyLoss(weight=counts.sum() / (5 * counts)), target)


def effective_numbers_of_samples():
    target = _classes(0.45, 0.2, 0.15, 0.12, 0.08)
    weight = (1 - 0.999) / (1 - 0.999 ** torch.bincount(target).float())
    return _train(nn.CrossEntropyLoss(weight=weight / weight.mean()), target)


def costs_of_classes():
    """Those of the frequent classes are higher, and by chance in the order of the frequencies."""
    return _train(nn.CrossEntropyLoss(weight=torch.tensor([5.0, 2.0, 1.0])), _classes(0.62, 0.25, 0.13))


def costs_of_many_classes():
    weight = torch.tensor([1.7, 0.31, 2.9, 1.13, 0.57])
    return _train(nn.CrossEntropyLoss(weight=weight), _classes(0.4, 0.25, 0.2, 0.1, 0.05))


def costs_that_rise_slowly():
    target = _classes(0.5, 0.25, 0.15, 0.1)
    return _train(nn.CrossEntropyLoss(weight=torch.bincount(target).float().pow(0.4)), target)


def counts_of_a_data_set_that_a_sampler_balances():
    target = _classes(1.0, 1.0, 1.0, 1.0)
    return _train(nn.CrossEntropyLoss(weight=torch.tensor([0.4512, 0.2037, 0.2248, 0.1203])), target)


def costs_of_two_classes():
    return _train(nn.CrossEntropyLoss(weight=torch.tensor([1.237, 3.511])), _classes(0.1, 0.9))


def counts_of_too_few_labels():
    target = _classes(0.6, 0.3, 0.1, size=48)
    return _train(nn.CrossEntropyLoss(weight=torch.bincount(target).float()), target, batch=4, steps=12, classes=3)


def weights_of_each_batch():
    def criterion(logits, target):
        positives = target.sum(0)
        weight = (len(target) - positives) / positives.clamp(min=1)
        return F.binary_cross_entropy_with_logits(logits, target, pos_weight=weight)

    return _train(criterion, _tags())


def background_without_weight():
    target = _classes(0.7, 0.16, 0.09, 0.05)
    counts = torch.bincount(target).float()
    weight = counts.mean() / counts
    weight[0] = 0
    return _train(nn.CrossEntropyLoss(weight=weight), target)


def smoothed_targets():
    target = _tags() * 0.9 + 0.05
    return _train(nn.BCEWithLogitsLoss(pos_weight=torch.tensor([0.4286, 0.1364, 0.1111, 0.087, 0.25, 0.0638])), target)
