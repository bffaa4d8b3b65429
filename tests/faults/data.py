"""Pixels, padding, labels and samples that are not what the model takes them for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from debugkit import Declare
from faults.fault import fault
from healthy.epochs import quadrants
from healthy.language_models import text
from healthy.program import Program
from healthy.vision_and_speech import images


@fault("DK301", of="vit_classifier", module="vit.embeddings.patch_embeddings.projection")
def pixels_from_0_to_255(program: Program) -> None:
    program.batch["pixel_values"] = (images().sigmoid() * 255).round()


@fault("DK301", of="siglip_regresses_an_action", module="tower.embeddings.patch_embedding")
def tower_given_raw_pixels(program: Program) -> None:
    program.batch["pixel_values"] = torch.randint(256, (4, 3, 32, 32)).float()


@fault("DK302", of="vit_classifier", module="vit.embeddings.patch_embeddings.projection")
def pixels_normalised_twice(program: Program) -> None:
    picture = torch.rand(4, 3, 32, 32)
    program.batch["pixel_values"] = ((picture - 0.5) / 0.5 - 0.5) / 0.5


@fault("DK303", of="lstm_over_packed_sequences", says="padding")
def sequences_not_packed(program: Program) -> None:
    model = program.model
    model.forward = lambda input_ids, attention_mask: model.tag(model.lstm(model.words(input_ids))[0])


@fault("DK303", of="bert_classifies_sequences", says="padding")
def mask_not_handed_on(program: Program) -> None:
    inner = program.model.bert.forward
    program.model.bert.forward = lambda *args, attention_mask=None, **kwargs: inner(*args, **kwargs)


@fault("DK304", of="mask_of_minus_infinity", says="later")
def attention_without_a_mask(program: Program) -> None:
    program.model.mask.zero_()
    program.declare = Declare(causal=True, labels="ids")


@fault("DK304", of="llama_with_padded_rows", says="later", also=("DK303", "DK315"))
def llama_that_looks_ahead(program: Program) -> None:
    program.batch["attention_mask"].fill_(1)
    body = program.model.model
    body.norm.register_forward_hook(lambda _module, _inputs, output: output + output.flip(1))


@fault("DK305", of="siglip_regresses_an_action", says="sample")
def features_normalised_over_the_batch(program: Program) -> None:
    model = program.model

    def forward(pixel_values: Tensor) -> Tensor:
        patches = model.tower(pixel_values=pixel_values).last_hidden_state.mean(1)
        return model.head(patches - patches.mean(0))

    model.forward = forward


@fault("DK305", of="chunk_decoder_returning_a_dict", says="sample")
def softmax_over_the_batch(program: Program) -> None:
    program.model.decoder.register_forward_hook(lambda _module, _inputs, output: output.softmax(0))


@fault("DK306", of="policy_that_regresses_chunks", says="input_ids")
def instruction_multiplied_by_zero(program: Program) -> None:
    program.batch["attention_mask"].fill_(1)
    model, embed = program.model, program.model.embed_instruction
    model.embed_instruction = lambda input_ids: embed(input_ids) * 0


@fault("DK306", of="chunk_decoder_returning_a_dict", says="state", also=("DK107",))
def state_overwritten(program: Program) -> None:
    program.model.read_state.register_forward_hook(lambda _module, _inputs, output: 0 * output)


@fault("DK307", of="llama_with_padded_rows", says="label")
def all_labels_ignored(program: Program) -> None:
    program.batch["labels"].fill_(-100)


@fault("DK307", of="llama_with_padded_rows", says="are 7")
def every_answer_is_the_same_token(program: Program) -> None:
    labels = program.batch["labels"]
    labels[labels >= 0] = 7


@fault("DK308", of="convolutions_with_batch_norm")
def softmax_before_cross_entropy(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        chances = model(batch["pixel_values"])[0].softmax(-1)
        return F.cross_entropy(chances, batch["labels"])  # DK308

    program.loss_fn = loss_fn


@fault("DK308", of="adversaries_checked_at_the_generators_step")
def sigmoid_before_a_loss_that_has_one(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
        verdict = model.discriminator(model.generator(torch.randn_like(batch[:, :4]))).sigmoid()
        return F.binary_cross_entropy_with_logits(verdict, torch.ones_like(verdict))  # DK308

    program.loss_fn = loss_fn


@fault("DK316", of="convolutions_with_batch_norm")
def logits_given_to_nll_loss(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return F.nll_loss(model(batch["pixel_values"])[0], batch["labels"])  # DK316

    program.loss_fn = loss_fn


@fault("DK316", of="speech_with_connectionist_temporal_classification")
def logits_given_to_ctc_loss(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: Any) -> Tensor:
        spectrograms, labels, input_lengths, label_lengths = batch
        x = model.conv(spectrograms).transpose(1, 2)
        logits = model.fc(model.rnn(x)[0]).transpose(0, 1)
        lengths = (input_lengths + 1) // 2
        return F.ctc_loss(logits, labels, lengths, label_lengths, zero_infinity=True)  # DK316

    program.loss_fn = loss_fn


@fault("DK316", of="adversaries_checked_at_the_generators_step")
def labels_of_minus_one_and_one(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: Tensor) -> Tensor:
        verdict = model.discriminator(model.generator(torch.randn_like(batch[:, :4])))
        return F.binary_cross_entropy_with_logits(verdict, -torch.ones_like(verdict))  # DK316

    program.loss_fn = loss_fn


@fault("DK309", of="llama_with_padded_rows", says="labels in the padding")
def padding_learnt_as_token_zero(program: Program) -> None:
    program.batch = text(pad_labels=0)()


@fault("DK309", of="chunk_decoder_returning_a_dict")
def mean_over_padded_steps(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        error = F.l1_loss(model(batch)["action"], batch["action"], reduction="none").mean(-1)  # (B, H)
        return (error * ~batch["action_is_pad"]).mean()  # DK309

    program.loss_fn = loss_fn


@fault("DK309", of="chunk_decoder_returning_a_dict", says="marked as padding")
def padded_steps_learnt(program: Program) -> None:
    program.loss_fn = lambda model, batch: F.l1_loss(model(batch)["action"], batch["action"])


@fault(
    "DK311",
    of="policy_with_training_and_validation_loaders",
    says="of the validation loader are also in the train loader",
)
def validated_on_the_training_set(program: Program) -> None:
    program.loaders = {"train": program.loaders["train"], "validation": program.loaders["train"]}


@fault("DK312", of="llama_with_padded_rows", says="loss", also=("DK120",))
def head_drawn_far_too_wide(program: Program) -> None:
    with torch.no_grad():
        program.model.lm_head.weight.mul_(200)


@fault("DK314", of="llama_with_padded_rows", says="shift")
def labels_shifted_by_the_dataset_and_by_the_model(program: Program) -> None:
    labels = program.batch["labels"]
    program.batch["labels"] = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], -100)], 1)


_IN_ORDER = "ticks_standardised_in_the_model_and_read_in_an_order_that_was_shuffled_once"


@fault("DK318", of=_IN_ORDER, says="sorted by entry `1`")
def samples_of_one_folder_after_the_other(program: Program) -> None:
    ticks, labels = program.loaders.dataset.tensors
    program.loaders = DataLoader(TensorDataset(ticks[labels.argsort()], labels.sort().values), batch_size=16)


@fault("DK319", of=_IN_ORDER, module="layers.0")
def ticks_given_to_the_first_layer(program: Program) -> None:
    program.model.forward = lambda ticks: program.model.layers(ticks)


@fault("DK320", of=_IN_ORDER, says="2 samples of")
def two_samples_in_another_unit(program: Program) -> None:
    ticks, labels = program.loaders.dataset.tensors
    ticks = ticks.clone()
    ticks[7:9] *= 1000
    program.loaders = DataLoader(TensorDataset(ticks, labels), batch_size=16, shuffle=True)


@fault("DK321", of="cosine_for_each_epoch_with_the_best_weights_kept", by="watch", says="none of the 4 batches")
def validation_with_the_names_of_the_training_loop(program: Program) -> None:
    def train(self: Program) -> None:
        training = DataLoader(TensorDataset(*quadrants(64)), batch_size=16, shuffle=True)
        held_out = DataLoader(TensorDataset(*quadrants(32)), batch_size=8)
        for _ in range(3):
            self.model.train()
            for pictures, labels in training:
                self.optimizer.zero_grad()
                self.loss((pictures, labels)).backward()
                self.optimizer.step()
            self.model.eval()
            accuracy = 0.0
            with torch.no_grad():
                for _held_images, _held_labels in held_out:
                    accuracy += float((self.model(pictures).argmax(1) == labels).float().mean())  # DK321

    program.train = train


@fault("DK322", of="vit_classifier", module="vit.embeddings.patch_embeddings", says="squares")
def patches_of_a_bare_reshape(program: Program) -> None:
    projection = program.model.vit.embeddings.patch_embeddings.projection
    program.model.vit.embeddings.patch_embeddings.forward = lambda pixel_values, **_: F.linear(
        pixel_values.unfold(2, 8, 8).unfold(3, 8, 8).reshape(len(pixel_values), -1, 3 * 8 * 8),  # DK322
        projection.weight.flatten(1),
        projection.bias,
    )


@fault("DK322", of="siglip_regresses_an_action", says="squares")
def unfolded_and_not_transposed(program: Program) -> None:
    embeddings = program.model.tower.embeddings

    def forward(pixel_values: Tensor, **_: object) -> Tensor:
        rows = F.unfold(pixel_values, 8, stride=8).reshape(len(pixel_values), -1, 3 * 8 * 8)  # DK322
        weight, bias = embeddings.patch_embedding.weight, embeddings.patch_embedding.bias
        return F.linear(rows, weight.flatten(1), bias) + embeddings.position_embedding.weight

    embeddings.forward = forward


@fault("DK323", of="llama_with_padded_rows", says="token 2")
def collator_that_ignores_the_end(program: Program) -> None:
    batch, end = program.batch, 2
    last = batch["attention_mask"].sum(1, keepdim=True) - 1
    batch["input_ids"] = batch["input_ids"].scatter(1, last, end).masked_fill(batch["attention_mask"] == 0, end)
    batch["labels"] = batch["input_ids"].masked_fill(batch["input_ids"] == end, -100)


@fault("DK324", of="chunk_decoder_returning_a_dict", says="the 32 features of `read_image`")
def feature_map_reshaped_to_tokens(program: Program) -> None:
    model = program.model

    def forward(batch: dict[str, Tensor]) -> dict[str, Tensor]:
        features = model.read_image(batch["pixel_values"])
        patches = features.reshape(len(features), -1, features.size(1))  # DK324
        memory = torch.cat([patches, model.read_state(batch["state"])[:, None]], 1)
        return {"action": model.head(model.decoder(model.query.expand(len(memory), -1, -1), memory))}

    model.forward = forward


@fault("DK324", of="translation_with_teacher_forcing", by="watch", says="`cross_entropy` reads dimension 1")
def scores_reshaped_for_the_loss(program: Program) -> None:
    def loss_fn(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        src, trg = batch
        output = model(src, trg)  # (B, T, classes)
        scores = output.reshape(len(src), output.size(-1), -1)  # DK324
        return F.cross_entropy(scores, trg[:, 1:], ignore_index=0)

    program.loss_fn = loss_fn


@fault("DK325", of="small_gpt_learns_to_add", module="transformer.wte")
def the_same_window_for_inputs_and_targets(program: Program) -> None:
    x, _ = program.batch
    program.batch = x, x.clone()


@fault("DK326", of="low_rank_adapters_written_by_hand", module="encoder.layers.0.self_attn", says="padding only")
def mask_of_the_other_convention(program: Program) -> None:
    model, (ids, valid, label) = program.model, program.batch
    for row in range(len(ids)):
        ids[row, 3 + row % 3 :], valid[row, 3 + row % 3 :] = 0, False

    def forward(ids: Tensor, valid: Tensor) -> Tensor:
        hidden = model.encoder(model.emb(ids), src_key_padding_mask=valid)  # DK326
        return model.score((hidden * valid.unsqueeze(-1)).sum(1) / valid.sum(1, keepdim=True))

    model.forward, program.batch = forward, (ids, valid, label)
