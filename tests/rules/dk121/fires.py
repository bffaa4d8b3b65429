"""Losses with a term that was computed from detached values."""

import warnings

import torch
from torch import nn
from torch.distributions import Categorical, Normal
from torch.nn import functional as F


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.Tanh())
        self.pi, self.value = nn.Linear(8, 4), nn.Linear(8, 1)

    def forward(self, x):
        hidden = self.body(x)
        return Categorical(logits=self.pi(hidden)), self.value(hidden).squeeze(-1)


class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.codes, self.decoder = nn.Linear(3, 4), nn.Embedding(8, 4), nn.Linear(4, 3)

    def forward(self, x):
        z = self.encoder(x)
        e = self.codes(torch.cdist(z, self.codes.weight).argmin(1))
        return z, e, self.decoder(z + (e - z).detach())


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(3, 4)
        self.experts = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))

    def forward(self, x):
        probabilities = self.router(x).softmax(-1)
        gate, which = probabilities.max(-1)
        mixed = torch.stack([self.experts[i](row) for i, row in zip(which.tolist(), x, strict=True)])
        share = F.one_hot(which, 4).float().mean(0)
        self.balance = 4 * (share * probabilities.mean(0).detach()).sum()  # DK121
        return gate[:, None] * mixed


def _check(model, loss_fn, **expect):
    batch = {"x": torch.randn(8, 3), "y": torch.randn(8, 3), "action": torch.randint(0, 4, (8,))}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    expect = {"severity": "warning", **expect}
    return {"model": model, "batch": batch, "loss_fn": loss_fn, "optimizer": optimizer, "expect": expect}


def ratio_of_detached_log_probabilities():
    def loss_fn(model, batch):
        policy, value = model(batch["x"])
        ratio = (policy.log_prob(batch["action"]).detach() - batch["y"][:, 0]).exp()  # DK121
        clipped = torch.min(ratio * batch["y"][:, 1], ratio.clamp(0.8, 1.2) * batch["y"][:, 1])
        return -clipped.mean() + 0.5 * (value - batch["y"][:, 2]).square().mean() - 0.01 * policy.entropy().mean()

    return _check(Policy(), loss_fn, module="pi", message="after `pi`, so a term that `fires.py:")


def both_sides_of_the_commitment_term():
    def loss_fn(model, batch):
        z, e, decoded = model(batch["x"])
        loss = F.mse_loss(decoded, batch["x"]) + F.mse_loss(e, z.detach())
        return loss + 0.25 * F.mse_loss(z.detach(), e.detach())  # DK121

    return _check(Codes(), loss_fn, module="encoder", message="a term of the loss")


def balance_of_experts():
    def loss_fn(model, batch):
        return F.mse_loss(model(batch["x"]), batch["y"]) + 0.01 * model.balance

    return _check(Experts(), loss_fn, module="router")


def balance_of_experts_under_watch():
    def loop(model, optimizer):
        for _ in range(4):
            x = torch.randn(8, 3)
            losses = [F.mse_loss(model(x), x), model.balance]
            optimizer.zero_grad()
            (torch.stack(losses) * torch.tensor([1.0, 0.01])).sum().backward()
            optimizer.step()

    model = Experts()
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loop": loop}


def gradient_accumulation_in_place():
    def loop(model, optimizer):
        for _ in range(2):
            optimizer.zero_grad()
            for _ in range(2):
                x = torch.randn(8, 3)
                loss = x.new_zeros(())
                loss += F.relu(1 - model(x)[0].probs.data.std(0)).mean()  # DK121
                loss += model(x)[1].square().mean()
                (loss / 2).backward()
            optimizer.step()

    model = Policy()
    expect = {"message": "`data` stops the gradient after `pi`"}
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loop": loop, "expect": expect}


def penalty_on_the_data_of_weights():
    def loss_fn(model, batch):
        penalty = sum(parameter.data.square().sum() for parameter in model.parameters())  # DK121
        return model(batch["x"])[1].square().mean() + 1e-3 * penalty

    return _check(Policy(), loss_fn, message="`data` stops")


def divergence_of_values_from_a_no_grad_block():
    def loss_fn(model, batch):
        hidden = model.body(batch["x"])
        with torch.no_grad():  # DK121
            probabilities = model.pi(hidden).softmax(-1)
        entropy = -(probabilities * probabilities.log()).sum(-1).mean()
        return F.mse_loss(model.value(hidden).squeeze(-1), batch["y"][:, 0]) - 0.1 * entropy

    return _check(Policy(), loss_fn, message="`no_grad` stops")


def gradient_penalty_without_a_graph():
    def loss_fn(model, batch):
        x = batch["x"].requires_grad_()
        value = model(x)[1]
        (gradient,) = torch.autograd.grad(value.sum(), x, retain_graph=True)  # DK121
        return value.mean() + 10 * (gradient.norm(dim=1) - 1).square().mean()

    return _check(Policy(), loss_fn, message="`grad` stops")


def consistency_of_a_detached_student():
    teacher = Policy()

    def loss_fn(model, batch):
        student, value = model(batch["x"])
        with torch.no_grad():
            target = teacher(batch["x"])[0].probs
        student = student.logits.detach().log_softmax(-1)  # DK121
        return value.square().mean() + F.kl_div(student, target, reduction="batchmean")

    return _check(Policy(), loss_fn, module="pi")


def divergence_of_a_detached_posterior():
    def loss_fn(model, batch):
        mean, scale = model.body(batch["x"]).chunk(2, 1)
        decoded = model.pi(torch.cat([mean, mean + scale], 1))
        posterior = Normal(mean.detach(), scale.detach().exp())  # DK121
        divergence = torch.distributions.kl_divergence(posterior, Normal(0.0, 1.0)).sum(1).mean()
        return decoded.square().mean() + divergence

    return _check(Policy(), loss_fn, module="body.0")


# Terms that were converted to numbers


class Tasks(nn.Module):
    """A body with a head for each of three tasks."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.Tanh())
        self.heads = nn.ModuleDict({name: nn.Linear(8, 3) for name in ("depth", "normal", "edge")})

    def losses(self, x):
        hidden = self.body(x)
        return {name: F.mse_loss(head(hidden), x.roll(1, -1)) for name, head in self.heads.items()}


def _loop(step, model=None, **expect):
    model = model or Tasks()

    def loop(model, optimizer):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Converting a tensor with requires_grad=True")
            for _ in range(6):
                optimizer.zero_grad()
                step(model, torch.randn(8, 3))
                optimizer.step()

    expect = {"severity": "warning", **expect}
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loop": loop, "expect": expect}


def item_of_a_term():
    def step(model, x):
        losses = model.losses(x)
        total = losses["depth"] + losses["edge"] + 0.5 * losses["normal"].item()  # DK121
        total.backward()

    return _loop(step, module="heads.normal", message="2 parameters (`heads.normal.weight` and")


def float_of_a_term_that_another_line_adds():
    def step(model, x):
        losses = model.losses(x)
        values = {name: float(loss) for name, loss in losses.items() if name != "edge"}  # DK121
        total = losses["depth"]
        total += 2 * values["normal"]
        ((total + losses["edge"]) / 2).backward()

    return _loop(step, module="heads.normal", message="that `fires.py:")


def sum_of_items():
    def step(model, x):
        losses = model.losses(x)
        rest = sum(loss.item() for name, loss in losses.items() if name != "depth")  # DK121
        (losses["depth"] + rest).backward()

    return _loop(step, module="heads", message="4 parameters")


def list_of_terms():
    def step(model, x):
        losses = model.losses(x)
        _, normal, _ = torch.stack(list(losses.values())).tolist()  # DK121
        (losses["depth"] + 0.1 * normal + losses["edge"]).backward()

    return _loop(step, module="heads.normal")


def detached_term_of_micro_batches():
    def step(model, x):
        for part in x.chunk(2):
            losses = model.losses(part)
            total = losses["depth"] + losses["normal"].detach() + losses["edge"]  # DK121
            (total / 2).backward()

    return _loop(step, module="heads.normal")


def term_of_a_module_outside_the_model():
    model = Tasks()
    criterion = nn.Linear(3, 3)

    def loop(model, optimizer):
        for _ in range(6):
            optimizer.zero_grad()
            x = torch.randn(8, 3)
            loss = sum(model.losses(x).values())
            penalty = criterion(x).square().mean()
            (loss + penalty.item()).backward()  # DK121
            optimizer.step()

    parameters = [*model.parameters(), *criterion.parameters()]
    expect = {"severity": "warning", "message": "2 parameters of the optimizer have"}
    return {"model": model, "optimizer": torch.optim.SGD(parameters, lr=0.1), "loop": loop, "expect": expect}
