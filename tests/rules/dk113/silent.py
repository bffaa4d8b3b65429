"""Models in which exactly the declared parameters train, and attributes that mean something else."""

import torch
from torch import nn

import debugkit


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision, self.head = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x):
        return {"loss": self.head(self.vision(x)).square().mean()}


def _program(model, trainable, **more):
    declare = None if trainable is None else debugkit.Declare(trainable=trainable)
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "declare": declare, **more}


def frozen_tower():
    model = Policy()
    model.vision.requires_grad_(False)
    return _program(model, ("head.*",))


def everything():
    return _program(Policy(), ("*",))


def lora():
    from peft import LoraConfig, get_peft_model

    return _program(get_peft_model(Policy(), LoraConfig(target_modules=["vision"])), ("*.lora_A.*", "*.lora_B.*"))


def tied_head_declared_by_its_second_name():
    model = Policy()
    model.other = nn.Linear(4, 3)
    model.other.weight, model.other.bias = model.head.weight, model.head.bias
    model.vision.requires_grad_(False)
    return _program(model, ("other.*",))


def compiled_model():
    model = torch.compile(Policy(), backend="eager")
    model.vision.requires_grad_(False)
    return _program(model, ("head.*",))


def nothing_declared():
    return _program(Policy(), None, expect={"not_examined": "not declared"})


def _trained(model, of=None, **more):
    optimizer = torch.optim.SGD((of or model).parameters(), lr=0.1)
    return {"model": model, "batch": {"x": torch.randn(5, 3)}, "optimizer": optimizer, **more}


def _steps(model, optimizer, count=12):
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(5, 3))["loss"].backward()
        optimizer.step()


def frozen_by_the_method():
    model = Policy()
    model.vision.requires_grad_(False)
    return _trained(model, loop=_steps, expect={"not_examined": "No module has an attribute"})


def attribute_beside_the_method():
    model = Policy()
    model.vision.requires_grad = False
    model.vision.requires_grad_(False)
    return _trained(model, loop=_steps)


def all_but_one_part_frozen():
    model = nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4)), nn.Linear(4, 3))
    model[0].requires_grad = False
    model[0].requires_grad_(False)
    model[0][1].requires_grad_(True)
    return _trained(model, loss_fn=lambda model, batch: model(batch["x"]).square().mean())


def thawed_later():
    model = Policy()
    model.vision.requires_grad = False
    model.vision.requires_grad_(False)

    def loop(model, optimizer):
        _steps(model, optimizer)
        model.vision.requires_grad_(True)
        _steps(model, optimizer)

    return _trained(model, loop=loop)


def only_the_head_is_in_the_optimizer():
    model = Policy()
    model.vision.requires_grad = False
    return _trained(model, model.head)


def only_the_head_is_in_the_watched_optimizer():
    model = Policy()
    model.vision.requires_grad = False
    return _trained(model, model.head, loop=_steps)


class Flagged(nn.Linear):
    """Its class has the attribute: it decides whether the inputs get a gradient."""

    def __init__(self, *sizes, requires_grad=False):
        super().__init__(*sizes)
        self.requires_grad = requires_grad

    def forward(self, x):
        return super().forward(x if self.requires_grad else x.detach())


def setting_of_the_modules_own_class():
    model = Policy()
    model.vision = Flagged(3, 4)
    return _trained(model)


def setting_of_the_modules_own_class_in_a_loop():
    model = Policy()
    model.vision = Flagged(3, 4)
    return _trained(model, loop=_steps)


class WithoutGradients(Policy):
    def forward(self, x):
        with torch.no_grad():
            x = self.vision(x)
        return {"loss": self.head(x).square().mean()}


def attribute_of_a_module_that_runs_without_gradients():
    model = WithoutGradients()
    model.vision.requires_grad = False
    return _trained(model)


def attribute_of_a_module_that_runs_without_gradients_in_a_loop():
    model = WithoutGradients()
    model.vision.requires_grad = False
    return _trained(model, loop=_steps)


class AsksItsTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.asked_tower, self.head = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x):
        with torch.set_grad_enabled(self.asked_tower.requires_grad):
            x = self.asked_tower(x)
        return {"loss": self.head(x).square().mean()}


def attribute_that_the_program_reads():
    model = AsksItsTower()
    model.asked_tower.requires_grad = False
    return _trained(model)


def discriminator_and_generator_in_turn():
    model = nn.ModuleDict({"generator": nn.Linear(3, 4), "critic": nn.Linear(4, 1)})

    def loop(model, _):
        generator, critic = model["generator"], model["critic"]
        first, second = (torch.optim.Adam(part.parameters()) for part in (generator, critic))
        for _ in range(12):
            critic.requires_grad = False
            first.zero_grad()
            critic(generator(torch.randn(5, 3))).mean().neg().backward()
            first.step()
            critic.requires_grad = True
            second.zero_grad()
            critic(generator(torch.randn(5, 3)).detach()).mean().backward()
            second.step()

    return {"model": model, "loop": loop}


def assigned_by_a_library():
    from transformers import UniSpeechSatConfig, UniSpeechSatForPreTraining

    config = UniSpeechSatConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        conv_dim=(8,),
        conv_stride=(5,),
        conv_kernel=(10,),
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        codevector_dim=8,
        proj_codevector_dim=8,
        num_codevectors_per_group=4,
        do_stable_layer_norm=True,
    )
    model = UniSpeechSatForPreTraining(config)
    loss_fn = lambda model, batch: model.layer_norm_for_extract(batch["x"]).square().mean()  # noqa: E731 - one line
    return _trained(model, loss_fn=loss_fn)
