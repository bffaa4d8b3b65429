"""Lines that stop a gradient which should pass."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Tower(nn.Module):
    """A vision tower and a head; subclasses define the line between them."""

    def __init__(self):
        super().__init__()
        self.vision = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
        self.head = nn.Linear(4, 2)

    def forward(self, x, y):
        return {"loss": (self.head(self.features(x)) - y).square().mean()}


class Detached(Tower):
    def features(self, x):
        seen = self.vision(x)
        return seen.detach()  # DK105


class Recreated(Tower):
    def features(self, x):
        return torch.tensor(self.vision(x).tolist())  # DK105


class WithoutGradient(Tower):
    def features(self, x):
        with torch.no_grad():  # DK105
            return self.vision(x)


class DataOfALayer(Tower):
    def features(self, x):
        return nn.functional.linear(self.vision(x).data, torch.eye(4))  # DK105


class RecomputedWithoutAnInputThatRequiresAGradient(Tower):
    def features(self, x):
        return checkpoint(self.vision, x, use_reentrant=True)  # DK105


def _program(model, **expect):
    batch = {"x": torch.randn(3, 4), "y": torch.randn(3, 2)}
    return {"model": model, "batch": batch, "expect": {"severity": "error", **expect}}


def detach():
    return _program(
        Detached(), module="vision", message="4 trainable parameters (`vision.0.weight`, `vision.0.bias` and 2 more)"
    )


def tensor_made_again():
    return _program(Recreated(), module="vision")


def no_grad_around_a_tower_that_should_train():
    return _program(WithoutGradient())


def data():
    return _program(DataOfALayer(), module="vision")


def generator_at_the_turn_of_its_discriminator():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model]

    def loss_fn(model, batch):
        fake = model[0](batch).detach()  # DK105
        return model[1](fake).square().mean()

    batch, expect = torch.randn(3, 4), {"severity": "info"}
    return {"model": model, "batch": batch, "loss_fn": loss_fn, "optimizer": optimizers, "expect": expect}


def cut_although_there_are_two_optimizers():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1))
    optimizers = [torch.optim.SGD(model[::2].parameters(), lr=0.1), torch.optim.SGD(model[1].parameters(), lr=0.1)]

    def loss_fn(model, batch):
        hidden = model[1](model[0](batch).detach())  # DK105
        return model[2](hidden).square().mean()

    batch, expect = torch.randn(3, 4), {"severity": "error"}
    return {"model": model, "batch": batch, "loss_fn": loss_fn, "optimizer": optimizers, "expect": expect}


class ThroughNumpy(Tower):
    def features(self, x):
        return torch.from_numpy(self.vision(x).detach().numpy().copy())  # DK105


class ThroughItem(Tower):
    def features(self, x):
        return torch.stack([torch.full((4,), row.mean().item()) for row in self.vision(x)])  # DK105


class HardChoice(Tower):
    def features(self, x):
        return torch.eye(4)[self.vision(x).argmax(-1)]  # DK105


class Rounded(Tower):
    def features(self, x):
        return self.vision(x).round()  # DK105


class Forgets(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        return x * 2

    @staticmethod
    def backward(_ctx, _gradient):
        return None


class WithoutBackward(Tower):
    def features(self, x):
        return Forgets.apply(self.vision(x))


def through_numpy():
    return _program(ThroughNumpy())


def through_single_numbers():
    return _program(ThroughItem())


def reentrant_checkpoint_of_the_pixels():
    return _program(
        RecomputedWithoutAnInputThatRequiresAGradient(), message="`checkpoint(use_reentrant=True)` stops the gradient"
    )


def argmax():
    return _program(HardChoice())


def rounding():
    return _program(Rounded())


def custom_function_that_returns_none():
    return _program(WithoutBackward(), message="`Forgets.backward` stops the gradient")


def prefix_of_a_language_model_detached():
    from transformers import LlamaConfig, LlamaForCausalLM

    class Captioner(nn.Module):
        def __init__(self):
            super().__init__()
            config = LlamaConfig(
                vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2
            )
            self.projector, self.language = nn.Linear(4, 8), LlamaForCausalLM(config)

        def forward(self, image, labels):
            words = self.language.get_input_embeddings()(labels)
            prefix = self.projector(image)
            seen = torch.cat([prefix.detach(), words], dim=1)  # DK105
            return self.language(inputs_embeds=seen, labels=torch.nn.functional.pad(labels, (2, 0), value=-100))

    batch = {"image": torch.randn(3, 2, 4), "labels": torch.randint(0, 16, (3, 5))}
    expect = {"severity": "error", "module": "projector", "message": "2 trainable parameters (`projector.weight`"}
    return {"model": Captioner(), "batch": batch, "expect": expect}
