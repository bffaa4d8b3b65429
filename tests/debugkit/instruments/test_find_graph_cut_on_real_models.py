"""find_graph_cut on the classes that people train: SigLIP with Llama, pi0, Mixtral."""

from __future__ import annotations

import pytest

import debugkit


def test_a_detach_between_siglip_and_the_projector_starves_the_whole_tower(tiny_vla) -> None:
    model, batch = tiny_vla(lambda v: v.detach())
    (cut,) = debugkit.find_graph_cut(model, batch).cuts
    assert set(cut.parameters) == {f"vision.{name}" for name, _ in model.vision.named_parameters()}
    assert cut.after_module == "vision"
    assert cut.operation == "detach"


def test_a_healthy_vla_has_no_cut(tiny_vla) -> None:
    model, batch = tiny_vla()
    found = debugkit.find_graph_cut(model, batch)
    assert not found
    assert found.reached == found.trainable == len(list(model.parameters()))


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpointing_is_no_cut(tiny_vla, reentrant: bool) -> None:
    model, batch = tiny_vla()
    language = model.language  # the older name warns that it will go
    enable = getattr(language, "activation_checkpointing_enable", None) or language.gradient_checkpointing_enable
    enable({"use_reentrant": reentrant})
    found = debugkit.find_graph_cut(model.train(), batch)
    assert found.reached == found.trainable


def test_pi0s_last_prefix_layer_is_without_effect_not_cut(tiny_pi0) -> None:
    found = debugkit.find_graph_cut(*tiny_pi0)
    assert not found
    assert "model.vlm.language_model.layers.1.self_attn.q_proj.weight" in found.without_effect
    assert all("layers.1" in name or name.endswith("language_model.norm.weight") for name in found.without_effect)
    assert found.unused == ("model.dit.embed_tokens.weight",)


def test_mixtrals_unrouted_experts_are_not_cut(tiny_mixtral) -> None:
    assert not debugkit.find_graph_cut(*tiny_mixtral)


def test_check_can_run_it_as_a_measurement(tiny_vla) -> None:
    from debugkit.measurements.graph_cut import GraphCut
    from debugkit.measurements.graph_cut.measure import find_cuts
    from debugkit.observation import measurement_of
    from debugkit.setup import TrainingSetup

    model, batch = tiny_vla(lambda v: v.detach())
    assert measurement_of(GraphCut).load() is find_cuts
    assert find_cuts(TrainingSetup.of(model, batch)).parameters
