"""Losses with a term without a graph on purpose, and sums that only look like one."""

import copy

import torch
from torch import nn
from torch.distributions import Categorical, Normal
from torch.func import functional_call
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Heads(nn.Module):
    """A body with two heads; every test uses what it needs."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.Tanh())
        self.first, self.second, self.value = nn.Linear(8, 4), nn.Linear(8, 4), nn.Linear(8, 1)

    def forward(self, x):
        hidden = self.body(x)
        return self.first(hidden), self.second(hidden), self.value(hidden).squeeze(-1)


def _check(loss_fn, model=None, size=8):
    model = model or Heads()
    batch = {"x": torch.randn(size, 3), "y": torch.randn(size, 4), "action": torch.randint(0, 4, (size,))}
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=1e-3)
    return {"model": model, "batch": batch, "loss_fn": loss_fn, "optimizer": optimizer}


def _watch(loop, model=None):
    model = model or Heads()
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "loop": loop}


def _entropy(probabilities):
    return -(probabilities * probabilities.log()).sum(-1).mean()


def _cross_entropy(target, logits):
    return -(target * logits.log_softmax(-1)).sum(-1).mean()


# Detached on purpose


def terms_that_are_detached_themselves():
    def loss_fn(model, batch):
        first, second, value = model(batch["x"])
        loss, other = F.cross_entropy(first, batch["action"]), F.cross_entropy(second, batch["action"])
        reported = value.square().mean()
        return loss + 0.1 * other.detach() + (reported - loss).detach() + _entropy(first.softmax(-1)).detach()

    return _check(loss_fn)


def values_of_samples_that_are_only_averaged():
    def loss_fn(model, batch):
        first, second, value = model(batch["x"])
        each = F.cross_entropy(second, batch["action"], reduction="none").detach()
        kept = batch["action"] > 0
        masked = (each * kept.float()).sum() / kept.sum().clamp(min=1)
        return F.cross_entropy(first, batch["action"]) + each.mean() + each[kept].sum() / 8 + masked + value.mean()

    return _check(loss_fn)


def difference_of_two_detached_losses_of_samples():
    def loss_fn(model, batch):
        first, second, _ = model(batch["x"])
        each = F.cross_entropy(first, batch["action"], reduction="none")
        reported = F.cross_entropy(second, batch["action"], reduction="none")
        return each.mean() + (reported.detach() - each.detach()).mean()

    return _check(loss_fn)


def term_under_no_grad_as_a_whole():
    def loss_fn(model, batch):
        first, second, _ = model(batch["x"])
        loss = F.cross_entropy(first, batch["action"])
        with torch.no_grad():
            reported = _entropy(second.softmax(-1)) + second.square().mean()
        return loss + 0.01 * reported

    return _check(loss_fn)


def value_that_is_zero_and_has_a_gradient():
    def loss_fn(model, batch):
        first, _, value = model(batch["x"])
        score = first.log_softmax(-1)[:, 0]
        magic = (score - score.detach()).exp()
        loss = (magic * batch["y"][:, 0]).mean() + value.square().mean()
        return loss + score.mean() - score.detach().mean()

    return _check(loss_fn)


def losses_divided_by_their_values():
    def loss_fn(model, batch):
        first, second, _ = model(batch["x"])
        one, other = F.cross_entropy(first, batch["action"]), F.mse_loss(second, batch["y"])
        return one / one.detach() + other / other.detach()

    return _check(loss_fn)


def weights_from_detached_values():
    def loss_fn(model, batch):
        first, second, value = model(batch["x"])
        one, other = F.cross_entropy(first, batch["action"]), F.mse_loss(second, batch["y"])
        weight = (value.detach() - batch["y"][:, 0]).abs().mean().exp()
        return weight * one + (1 - torch.stack([one, other]).detach().softmax(0)[1]) * other + one * weight.square()

    return _check(loss_fn)


def value_of_a_gap_below_the_best_action():
    def loss_fn(model, batch):
        first, second, _ = model(batch["x"])
        best = first.detach().max(1).values.mean()
        return best - (first * second.softmax(-1)).sum(1).mean()

    return _check(loss_fn)


# Constants beside the term that uses them


def entropy_of_a_detached_head():
    """Self-distillation: KL divergence as cross-entropy minus entropy."""

    def loss_fn(model, batch):
        first, second, _ = model(batch["x"])
        target = first.detach().softmax(-1)
        distilled = _cross_entropy(target, second) - _entropy(target)
        return F.cross_entropy(first, batch["action"]) + distilled

    return _check(loss_fn)


def entropy_of_logits_detached_twice():
    def loss_fn(model, batch):
        first, second, _ = model(batch["x"])
        distilled = _cross_entropy(first.softmax(-1).detach(), second)
        entropy = Categorical(logits=first.detach()).entropy().mean()
        return F.cross_entropy(first, batch["action"]) + distilled - entropy

    return _check(loss_fn)


def entropy_of_a_teacher_under_no_grad():
    teacher = Heads()

    def loss_fn(model, batch):
        first, _, _ = model(batch["x"])
        with torch.no_grad():
            target = teacher(batch["x"])[0].softmax(-1)
        return F.cross_entropy(first, batch["action"]) + _cross_entropy(target, first) - _entropy(target)

    return _check(loss_fn)


class MeanTeacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.augment = nn.Linear(3, 3)
        self.student = nn.Linear(3, 4)
        self.teacher = copy.deepcopy(self.student)

    def forward(self, x):
        x = x + 0.1 * self.augment(x)  # so that what the teacher receives has a graph
        with torch.no_grad():
            target = self.teacher(x).div(0.1).softmax(-1)
        return self.student(x), target


def entropy_of_a_moving_average_that_receives_a_graph():
    def loss_fn(model, batch):
        logits, target = model(batch["x"])
        return _cross_entropy(target, logits) - _entropy(target)

    return _check(loss_fn, MeanTeacher())


def entropy_of_a_teacher_with_detached_parameters():
    def loss_fn(model, batch):
        detached = {name: parameter.detach() for name, parameter in model.named_parameters()}
        target = functional_call(model, detached, batch["x"])[0].softmax(-1)
        logits = model(batch["x"] + 0.1 * batch["y"][:, :3])[0]
        return _cross_entropy(target, logits) - _entropy(target)

    return _check(loss_fn)


class Dictionary(nn.Module):
    def __init__(self):
        super().__init__()
        self.atoms = nn.Linear(6, 3, bias=False)

    def forward(self, x):
        atoms = F.normalize(self.atoms.weight, dim=0)
        with torch.no_grad():
            codes = x @ atoms
            for _ in range(4):
                codes = F.softshrink(codes - 0.2 * (codes @ atoms.T - x) @ atoms, 0.02)
        return F.mse_loss(codes @ atoms.T, x) + 0.1 * codes.abs().sum(1).mean()


def penalty_on_codes_inferred_under_no_grad():
    return _check(lambda model, batch: model(batch["x"]), Dictionary())


def free_energy_of_a_mixture():
    """The expectation step is detached; its entropy belongs to the bound."""

    def loss_fn(model, batch):
        first, second, _ = model(batch["x"])
        joint = first.log_softmax(-1) - (second - batch["y"]).square()
        responsibilities = joint.detach().softmax(-1)
        return -(responsibilities * joint).sum(-1).mean() - _entropy(joint.softmax(-1).detach())

    return _check(loss_fn)


def bound_of_a_prior_of_detached_latents():
    """The entropy of the posterior is a constant for the prior that is trained here."""

    def loss_fn(model, batch):
        mean, log_scale, value = model(batch["x"])
        posterior = Normal(mean, log_scale.exp())
        latent = posterior.rsample()
        prior = F.linear(latent.detach(), model.first.weight[:, :4], model.first.bias)
        entropy = Normal(mean.detach(), log_scale.detach().exp()).entropy().sum(-1).mean()
        return prior.square().mean() - entropy + value.mean() + F.mse_loss(latent, batch["y"])

    return _check(loss_fn)


def variance_of_a_branch_that_is_a_target():
    def loss_fn(model, batch):
        first, second, _ = model(batch["x"])
        target = second.detach()
        spread = sum(F.relu(1 - view.std(0)).mean() for view in (first, target))
        return F.mse_loss(first, target) + 0.1 * spread + second.square().mean()

    return _check(loss_fn)


def encoder_detached_in_the_first_steps():
    def loop(model, optimizer):
        for step in range(6):
            hidden = model.body(torch.randn(8, 3))
            if step < 4:
                hidden = hidden.detach()
            loss = model.first(hidden).square().mean() + 0.01 * hidden.square().sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return _watch(loop)


def score_of_sampled_actions():
    def loss_fn(model, batch):
        first, second, value = model(batch["x"])
        policy = Normal(first, F.softplus(second))
        action = policy.sample()
        reward = -(action - batch["y"]).square().sum(-1)
        prior = Normal(0.0, 1.0).log_prob(action).sum(-1)
        score = (policy.log_prob(action).sum(-1) * (reward - value.detach())).mean()
        return F.mse_loss(value, reward) - score + 0.01 * prior.mean()

    return _check(loss_fn)


# No gradient could be expected


def constants_and_statistics_of_the_batch():
    def loss_fn(model, batch):
        first, _, _ = model(batch["x"])
        target = batch["y"].softmax(-1)
        return _cross_entropy(target, first) - _entropy(target) + 0.5 * torch.log(torch.tensor(2.0)) + 1.0

    return _check(loss_fn)


class MovingCodes(nn.Module):
    """A codebook in a buffer, which follows the mean of its members."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(3, 4), nn.Linear(4, 3)
        self.register_buffer("codes", torch.randn(8, 4))

    def forward(self, x):
        z = self.encoder(x)
        which = torch.cdist(z.detach(), self.codes).argmin(1)
        e = F.embedding(which, self.codes)
        with torch.no_grad():
            members = F.one_hot(which, 8).float()
            mean = members.T @ z / members.sum(0).clamp(min=1)[:, None]
            self.codes = torch.where(members.any(0)[:, None], 0.99 * self.codes + 0.01 * mean, self.codes)
        decoded = self.decoder(z + (e - z).detach())
        return F.mse_loss(decoded, x) + F.mse_loss(e, z.detach()) + 0.25 * F.mse_loss(z, e.detach())


def codebook_that_follows_a_moving_average():
    return _check(lambda model, batch: model(batch["x"]), MovingCodes())


def moving_codebook_under_watch():
    def loop(model, optimizer):
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 3)).backward()
            optimizer.step()

    return _watch(loop, MovingCodes())


def frozen_critic_of_a_detached_sample():
    """One function computes both losses, and the parameters of the idle side are frozen."""

    def loss_fn(model, batch):
        fake, real = model.body(batch["x"]), batch["y"].repeat(1, 2)
        generator = F.softplus(-model.value(fake)).mean()
        critic = F.softplus(model.value(fake.detach())).mean() + F.softplus(-model.value(real)).mean()
        return generator + critic

    model = Heads()
    model.value.requires_grad_(False)
    return _check(loss_fn, model)


def fixed_temperature():
    model = Heads()
    model.temperature = nn.Parameter(torch.zeros(()), requires_grad=False)

    def loss_fn(model, batch):
        first, second, _ = model(batch["x"])
        policy = first.log_softmax(-1)
        actor = (policy.exp() * (model.temperature.exp() * policy - second.detach())).sum(-1).mean()
        score = (policy.exp() * policy).sum(-1).detach()
        return actor + F.mse_loss(second, batch["y"]) - (model.temperature.exp() * (score - 1.3).abs()).mean()

    return _check(loss_fn, model)


def weight_of_zero():
    def loss_fn(model, batch):
        first, second, _ = model(batch["x"])
        off = torch.zeros(())
        smooth = F.relu(1 - second.detach().std(0)).mean()
        listed = torch.stack([F.cross_entropy(first, batch["action"]), smooth]) @ torch.tensor([1.0, 0.0])
        return listed + 0.0 * smooth + off * smooth + smooth * off

    return _check(loss_fn)


def weight_that_rises_from_zero():
    def loop(model, optimizer):
        for step in range(6):
            first, second, _ = model(torch.randn(8, 3))
            consistency = F.relu(1 - second.detach().std(0)).mean()
            weight = max(0.0, (step - 4) / 10)
            optimizer.zero_grad()
            (first.square().mean() + weight * consistency).backward()
            optimizer.step()

    return _watch(loop)


# No sum of losses


def temporal_difference_of_one_sample():
    def loss_fn(model, batch):
        now, later, _ = model(batch["x"])
        target = batch["y"][:, 0] + 0.9 * later.detach().max(1).values
        return (now[:, 0] - target).square().mean() + later.square().mean()

    return _check(loss_fn, size=1)


def distance_of_the_mean_to_a_detached_mean():
    def loss_fn(model, batch):
        first, second, _ = model(batch["x"])
        return (first.exp().mean() - second.detach().exp().mean()).abs() + second.square().mean()

    return _check(loss_fn)


def learned_weight_of_a_task():
    model = Heads()
    model.log_variance = nn.Parameter(torch.zeros(2))

    def loss_fn(model, batch):
        first, second, _ = model(batch["x"])
        losses = [F.cross_entropy(first, batch["action"]), F.mse_loss(second.detach(), batch["y"])]
        return sum((-s).exp() * loss + s for s, loss in zip(model.log_variance, losses, strict=True))

    return _check(loss_fn, model)


def sum_for_the_log():
    def loop(model, optimizer):
        for _ in range(4):
            first, second, _ = model(torch.randn(8, 3))
            loss = first.square().mean()
            total = loss + F.relu(1 - second.detach().std(0)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            float(total.detach())

    return _watch(loop)


def validation_between_steps():
    def loop(model, optimizer):
        for _ in range(4):
            model.eval()
            with torch.no_grad():
                hidden = model.body(torch.randn(8, 3))
                validation = model.first(hidden).square().mean() + F.relu(1 - hidden.std(0)).mean()
            model.train()
            loss = model(torch.randn(8, 3))[0].square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert validation > 0

    return _watch(loop)


# Graphs of several kinds


def state_carried_through_time():
    def loop(model, optimizer):
        state = torch.zeros(8, 8)
        for _ in range(4):
            start, kept = state.detach(), []
            state = start
            for _ in range(3):
                state = (model.body(torch.randn(8, 3)) + state).tanh()
                kept.append(state)
            activity = start.square().mean() + torch.stack(kept).square().mean()
            optimizer.zero_grad()
            (model.first(state).square().mean() + 0.1 * activity).backward()
            optimizer.step()

    return _watch(loop)


def penalty_on_a_gradient_with_a_graph():
    def loss_fn(model, batch):
        x = batch["x"].requires_grad_()
        value = model(x)[2]
        (gradient,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        return value.mean() + 10 * (gradient.norm(dim=1) - 1).square().mean()

    return _check(loss_fn)


def weights_of_losses_by_their_gradients():
    def loss_fn(model, batch):
        first, second, _ = model(batch["x"])
        one, other = F.cross_entropy(first, batch["action"]), F.mse_loss(second, batch["y"])
        weight = model.body[0].weight
        norms = [torch.autograd.grad(each, weight, retain_graph=True)[0].norm() for each in (one, other)]
        return one + norms[0] / (norms[1] + 1e-6) * other

    return _check(loss_fn)


def adversarial_inputs():
    def loss_fn(model, batch):
        x = batch["x"].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(model(x)[0], batch["action"]), x)
        moved = batch["x"] + 0.1 * gradient / (gradient.norm(dim=1, keepdim=True) + 1e-6)
        return F.cross_entropy(model(moved)[0], batch["action"]) + (moved - batch["x"]).norm(dim=1).mean()

    return _check(loss_fn)


def reentrant_checkpoint():
    def loss_fn(model, batch):
        hidden = checkpoint(model.body, batch["x"].requires_grad_(), use_reentrant=True)
        return model.first(hidden).square().mean() + 0.01 * hidden.std(0).mean()

    return _check(loss_fn)


class Halve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return (x * 0.5).exp()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 0.5


def function_with_its_own_backward():
    def loss_fn(model, batch):
        first, second, _ = model(batch["x"])
        return first.square().mean() + Halve.apply(second).log().mean()

    return _check(loss_fn)


def distance_of_inputs_that_were_optimized():
    """The graph that is removed here holds an input and no parameter."""

    def loss_fn(model, batch):
        x = batch["x"].clone().requires_grad_()
        F.cross_entropy(model(x)[0], batch["action"]).backward()
        moved = (x + 0.1 * x.grad.sign()).detach()
        model.zero_grad()
        return model(batch["x"])[0].square().mean() + (moved - batch["x"]).norm(dim=1).mean()

    return _check(loss_fn)


def two_losses_of_two_optimizers():
    """What one player's step has detached is not a term of the other's loss."""

    def loop(model, optimizer):
        critic = nn.Linear(4, 1)
        second = torch.optim.SGD(critic.parameters(), lr=0.1)
        for _ in range(4):
            fake = model(torch.randn(8, 3))[0]
            distance = critic(fake.detach()).mean() - critic(torch.randn(8, 4)).mean()
            second.zero_grad()
            distance.backward()
            second.step()
            optimizer.zero_grad()
            (-critic(fake).mean() + distance.detach()).backward()
            optimizer.step()

    return _watch(loop)


# Numbers that are not the term that trains


def _steps(step, model=None, parameters=None, steps=8):
    model = model or Heads()

    def loop(model, optimizer):
        for number in range(steps):
            optimizer.zero_grad()
            x, y = torch.randn(8, 3), torch.randn(8, 4)
            step(model, x, y, number)
            optimizer.step()

    optimizer = torch.optim.SGD(model.parameters() if parameters is None else parameters, lr=0.1)
    return {"model": model, "optimizer": optimizer, "loop": loop}


def head_that_is_computed_but_unused():
    def step(model, x, y, _):
        first, *_ = model(x)
        loss = F.mse_loss(first, y)
        history.append(loss.item())
        loss.backward()

    history = []
    return _steps(step)


def auxiliary_loss_that_is_logged_and_trained():
    def step(model, x, y, _):
        first, second, _ = model(x)
        loss, auxiliary = F.mse_loss(first, y), F.mse_loss(second, y)
        history.append((loss.item(), auxiliary.detach(), torch.stack([loss, auxiliary]).tolist()))
        (loss + 0.5 * auxiliary).backward()

    history = []
    return _steps(step)


def head_that_is_only_monitored():
    def step(model, x, y, _):
        first, second, value = model(x)
        loss = F.mse_loss(first, y) + 0.1
        history.append((F.mse_loss(second, y).item(), value.mean().item(), first.argmax(1).float().mean().item()))
        loss = loss + 0.01 * history[-1][2]
        loss.backward()
        history.append(loss.item())

    history = []
    return _steps(step)


def loss_plus_the_number_of_a_frozen_head():
    def step(model, x, y, _):
        first, second, _ = model(x)
        (F.mse_loss(first, y) + F.mse_loss(second, y).item()).backward()

    model = Heads()
    model.second.requires_grad_(False)
    model.value.requires_grad_(False)
    return _steps(step, model, [p for p in model.parameters() if p.requires_grad])


def loss_plus_the_number_of_a_head_that_no_optimizer_holds():
    def step(model, x, y, _):
        first, *_ = model(x)
        (F.mse_loss(first, y) + F.mse_loss(probe(x), y).item()).backward()

    probe = nn.Linear(3, 4)
    return _steps(step)


def total_with_the_number_of_a_loss_that_has_its_own_backward():
    def step(model, x, y, _):
        first, second, _ = model(x)
        F.mse_loss(second, y).backward(retain_graph=True)
        (F.mse_loss(first, y) + F.mse_loss(second, y).item()).backward()

    return _steps(step)


def adversaries_whose_totals_hold_the_number_of_the_other():
    discriminator = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    generator = nn.Linear(3, 3)

    def loop(model, optimizer):
        other = torch.optim.SGD(discriminator.parameters(), lr=0.1)
        for _ in range(8):
            x = torch.randn(8, 3)
            fake = model(x)
            second = F.softplus(-discriminator(x)).mean() + F.softplus(discriminator(fake.detach())).mean()
            first = F.softplus(-discriminator(fake)).mean()
            optimizer.zero_grad()
            (first + second.item()).backward()
            optimizer.step()
            other.zero_grad()
            second.backward()
            other.step()

    return {"model": generator, "optimizer": torch.optim.SGD(generator.parameters(), lr=0.1), "loop": loop}


def head_that_is_trained_in_every_fourth_step():
    def step(model, x, y, number):
        first, second, _ = model(x)
        auxiliary = F.mse_loss(second, y)
        (F.mse_loss(first, y) + (auxiliary if number % 4 == 3 else auxiliary.item())).backward()

    return _steps(step)


def constants_beside_a_head_that_begins_later():
    def step(model, x, y, number):
        first, second, _ = model(x)
        auxiliary = F.mse_loss(second, y)
        history.append(auxiliary.item())
        loss = F.mse_loss(first, y) + 0.25 + 0.1 * number
        (loss + auxiliary if number > 6 else loss).backward()

    history = []
    return _steps(step)


def validation_within_the_step():
    def step(model, x, y, _):
        first, *_ = model(x)
        (F.mse_loss(first, y) + 1e-3 * len(history)).backward()
        model.eval()
        history.append(F.mse_loss(model(y[:, :3])[1], y).item())
        model.train()

    history = []
    return _steps(step)


def value_of_the_loss_before_as_a_baseline():
    def step(model, x, y, _):
        first, second, _ = model(x)
        loss = F.mse_loss(first, y) - sum(history[-1:])
        history.append(F.mse_loss(second, y).item())
        loss.backward()

    history = []
    return _steps(step)
