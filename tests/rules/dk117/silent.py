"""Heads that are frozen for a reason, and heads that train."""

import torch
from torch import nn
from torch.nn import functional as F

from debugkit import Declare


def _program(model, batch=None, loss_fn=None, **more):
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    batch = batch or {"x": torch.randn(8, 6), "action": torch.randn(8, 7)}
    loss_fn = loss_fn or (lambda model, batch: F.mse_loss(model(batch["x"]), batch["action"]))
    return {"model": model, "batch": batch, "loss_fn": loss_fn, "optimizer": torch.optim.AdamW(trained)} | more


def _policy():
    return nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 7))


def head_that_trains():
    return _program(_policy())


def frozen_head_of_another_initialisation():
    model = _policy()
    nn.init.normal_(model[2].weight, std=0.1)
    model[2].requires_grad_(False)
    return _program(model)


def frozen_head_that_was_trained():
    model = _policy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        x = torch.randn(32, 6)
        F.mse_loss(model(x), torch.cat([x, x[:, :1]], dim=1)).backward()
        optimizer.step()
    model[2].requires_grad_(False)
    return _program(model)


def frozen_head_tied_to_the_embedding():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.body, self.head = nn.Embedding(32, 16), nn.Linear(16, 16), nn.Linear(16, 32, bias=False)
            self.words.weight = self.head.weight
            self.head.requires_grad_(False)

        def forward(self, ids):
            return self.head(torch.relu(self.body(self.words(ids))))

    batch = {"ids": torch.randint(32, (8, 5))}
    return _program(Tied(), batch, lambda model, batch: F.cross_entropy(model(batch["ids"])[:, 0], batch["ids"][:, 0]))


class _Adversaries(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 40))
        layers = [nn.Linear(40, 1)]
        if hidden:
            layers = [nn.Linear(40, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, 1)]
        self.discriminator = nn.Sequential(*layers)
        self.discriminator.requires_grad_(False)

    def forward(self, noise):
        return self.discriminator(self.generator(noise))


def discriminator_in_the_step_of_its_generator():
    return _program(_Adversaries(64), {"noise": torch.randn(8, 4)}, lambda m, batch: F.softplus(-m(**batch)).mean())


def linear_critic_that_another_optimizer_trains():
    model = _Adversaries(0)
    optimizers = [torch.optim.Adam(model.generator.parameters()), torch.optim.Adam(model.discriminator.parameters())]
    batch = {"noise": torch.randn(8, 4)}
    return _program(model, batch, lambda m, batch: -m(**batch).mean(), optimizer=optimizers)


def prediction_of_a_random_network():
    """The target is outside the graph; the predictor trains."""

    class Curiosity(nn.Module):
        def __init__(self):
            super().__init__()
            self.target, self.predictor = _policy().requires_grad_(False), _policy()

        def forward(self, x):
            return (self.predictor(x) - self.target(x)).square()

    return _program(Curiosity(), loss_fn=lambda model, batch: model(batch["x"]).mean())


def declared_random_projection():
    model = _policy()
    model[2].requires_grad_(False)
    declare = Declare(trainable=["0.*"])
    return _program(model, declare=declare, expect={"not_examined": "The trainable parameters are declared"})


def tiny_head():
    model = nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 7))
    model[2].requires_grad_(False)
    return _program(model)


def _with_a_frozen_layer(first, between=None, others=2, **more):
    """A classifier of words or numbers behind `first`, which is frozen."""
    first.requires_grad_(False)
    hidden = [layer for _ in range(others - 1) for layer in (nn.LazyLinear(32), nn.GELU())]
    model = nn.Sequential(first, *(between or []), nn.Flatten(), *hidden, nn.LazyLinear(7))
    words = isinstance(first, nn.Embedding)
    x = torch.randint(40, (8, 4)) if words else torch.randn(8, first.weight.shape[1])
    model(x)
    return _program(model, {"x": x, "action": torch.randn(8, 7)}, **more)


def frozen_word_vectors():
    vectors = torch.distributions.StudentT(4.0).sample((400, 16)) * 0.4
    return _with_a_frozen_layer(nn.Embedding.from_pretrained(vectors))


def frozen_positions_of_sines():
    angles = torch.arange(40)[:, None] / 100 ** (torch.arange(8) / 8)
    return _with_a_frozen_layer(nn.Embedding.from_pretrained(torch.cat([angles.sin(), angles.cos()], dim=1)))


def random_fourier_features():
    layer = nn.Linear(6, 64, bias=False)
    nn.init.normal_(layer.weight, std=10.0)
    return _with_a_frozen_layer(layer)


def frozen_patch_projection_of_momentum_contrast():
    """It is drawn on purpose from another distribution than PyTorch's."""
    layer = nn.Linear(48, 64)
    nn.init.xavier_uniform_(layer.weight)
    return _with_a_frozen_layer(layer)


def random_features_below_a_linear_readout():
    return _with_a_frozen_layer(nn.Linear(6, 64), [nn.Tanh()], others=1)


def frozen_stem_of_a_model_that_was_loaded():
    program = _with_a_frozen_layer(nn.Linear(6, 64), [nn.LayerNorm(64), nn.GELU()])
    with torch.no_grad():
        for parameter in program["model"].parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return program


def frozen_stem_of_weights_that_are_declared_loaded():
    return _with_a_frozen_layer(nn.Linear(6, 64), declare=Declare(pretrained=True))


def random_target_of_one_layer():
    """The loss compares it itself."""

    class Curiosity(nn.Module):
        def __init__(self):
            super().__init__()
            self.target, self.predictor = (
                nn.Linear(6, 32).requires_grad_(False),
                nn.Sequential(*_policy(), nn.Linear(7, 32)),
            )

        def forward(self, x):
            return (self.predictor(x) - self.target(x)).square()

    return _program(Curiosity(), loss_fn=lambda model, batch: model(batch["x"]).mean())


def codebook_that_is_moved_without_gradients():
    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.codes = nn.Embedding(32, 8).requires_grad_(False)
            self.encoder, self.decoder = nn.Linear(6, 8), nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 7))

        def forward(self, x):
            x = self.encoder(x)
            nearest = self.codes(torch.cdist(x, self.codes.weight).argmin(dim=1))
            return self.decoder(x + (nearest - x).detach())

    return _program(Quantised())


def _trained(program, before_step=lambda model, step: None, steps=9, **more):
    """The same in a loop."""
    batch, loss_fn = program.pop("batch"), program.pop("loss_fn")

    def loop(model, optimizer):
        optimizers = optimizer if isinstance(optimizer, list) else [optimizer]
        for step in range(steps):
            for each in optimizers:
                each.zero_grad()
            before_step(model, step)
            loss_fn(model, batch).backward()
            for each in optimizers:
                each.step()

    return program | {"loop": loop} | more


def head_that_trains_in_a_loop():
    return _trained(head_that_trains())


def frozen_head_that_was_trained_before_the_loop():
    return _trained(frozen_head_that_was_trained())


def critic_of_one_layer_that_trains_in_turn():
    """It is frozen in the steps of the actor, and trains in those between them."""

    def before_step(model, step):
        model[2].requires_grad_(step % 6 == 5)
        model[0].requires_grad_(step % 6 != 5)

    program = _program(_policy())
    program["optimizer"] = torch.optim.AdamW(program["model"].parameters())
    return _trained(program, before_step)


def head_that_is_written_between_the_steps():
    """A head that follows another one, as in momentum contrast."""

    def before_step(model, step):
        with torch.no_grad():
            model[2].weight.mul_(0.99)

    model = _policy()
    model[2].requires_grad_(False)
    return _trained(_program(model), before_step)


def linear_critic_that_another_optimizer_trains_in_a_loop():
    return _trained(linear_critic_that_another_optimizer_trains())


def discriminator_in_the_steps_of_its_generator():
    return _trained(discriminator_in_the_step_of_its_generator())


def prediction_of_a_random_network_in_a_loop():
    return _trained(prediction_of_a_random_network())


def frozen_head_in_a_short_loop():
    model = _policy()
    model[2].requires_grad_(False)
    return _trained(_program(model), steps=4, expect={"not_examined": "The run is too short: 4 of 8 steps"})


def frozen_stem_of_a_model_that_was_loaded_in_a_loop():
    program = frozen_stem_of_a_model_that_was_loaded()
    program["model"][0].bias.requires_grad_(True)
    return _trained(program)
