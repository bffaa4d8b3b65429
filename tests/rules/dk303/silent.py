"""Models that handle padding correctly, or that are not padded."""

import warnings

import torch
from torch import nn

_SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}


def _batch(left=False, labels=True):
    mask = torch.ones(4, 9, dtype=torch.long)
    mask[1, 6:], mask[2, 4:] = 0, 0
    ids = torch.randint(3, 60, mask.shape) * mask
    batch = {"input_ids": ids, "attention_mask": mask}
    if labels:
        batch["labels"] = ids.masked_fill(mask == 0, -100)
    return {key: tensor.flip(1) if left else tensor for key, tensor in batch.items()}


def llama_padded_on_the_right():
    from transformers import LlamaConfig, LlamaForCausalLM

    return {"model": LlamaForCausalLM(LlamaConfig(**_SIZES)), "batch": _batch()}


def llama_padded_on_the_left_predicts_its_first_token_from_padding():
    from transformers import LlamaConfig, LlamaForCausalLM

    return {"model": LlamaForCausalLM(LlamaConfig(**_SIZES)), "batch": _batch(left=True)}


def llama_in_bfloat16():
    from transformers import LlamaConfig, LlamaForCausalLM

    return {"model": LlamaForCausalLM(LlamaConfig(**_SIZES)).bfloat16(), "batch": _batch()}


def mixture_of_experts():
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(**_SIZES, num_key_value_heads=2, num_local_experts=4)
    return {"model": MixtralForCausalLM(config), "batch": _batch()}


def bert_classifier_with_learnt_positions_at_full_length():
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(**{**_SIZES, "max_position_embeddings": 9})  # a longer input is not possible
    batch = _batch(labels=False) | {"labels": torch.tensor([0, 1, 1, 0])}
    return {"model": BertForSequenceClassification(config), "batch": batch}


def classifier_that_finds_the_last_token_by_the_padding_id():
    from transformers import LlamaConfig, LlamaForSequenceClassification

    config = LlamaConfig(**_SIZES, num_labels=3, pad_token_id=0)
    batch = _batch(labels=False) | {"labels": torch.tensor([0, 1, 2, 1])}
    return {"model": LlamaForSequenceClassification(config), "batch": batch}


def t5_with_labels_as_long_as_its_inputs():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)
    return {"model": T5ForConditionalGeneration(config), "batch": _batch()}


def gpt2_padded_on_the_left_with_positions_from_the_mask():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)

    def loss_fn(model, batch):
        positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        return model(**batch, position_ids=positions).loss

    return {"model": GPT2LMHeadModel(config), "batch": _batch(left=True), "loss_fn": loss_fn}


def recurrence_over_packed_sequences():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.rnn, self.head = nn.Embedding(64, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 2)

        def forward(self, input_ids, attention_mask):
            lengths = attention_mask.sum(1)
            packed = nn.utils.rnn.pack_padded_sequence(
                self.embedding(input_ids), lengths, batch_first=True, enforce_sorted=False
            )
            return {"loss": self.head(self.rnn(packed)[1][-1]).square().mean()}

    return {"model": Packed(), "batch": _batch(labels=False)}


def lora_on_a_frozen_model():
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"])
    with warnings.catch_warnings():  # peft reads an attribute of transformers under its old name
        warnings.simplefilter("ignore", FutureWarning)
        model = get_peft_model(LlamaForCausalLM(LlamaConfig(**_SIZES)), lora)
    return {"model": model, "batch": _batch()}


def noise_drawn_for_every_position():
    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(64, 8), nn.Linear(8, 8)

        def forward(self, input_ids, attention_mask):
            x = self.embedding(input_ids)
            error = (self.head(x + torch.randn(x.shape)) - x).square().mean(-1) * attention_mask
            return {"loss": error.sum() / attention_mask.sum()}

    return {"model": Denoiser(), "batch": _batch(labels=False)}


def a_policy_of_images_text_and_state():
    from labs.vla.dataset import collate, demonstrations
    from labs.vla.policy import Policy

    return {"model": Policy(), "batch": collate(demonstrations(8, 0), range(8))}


def nothing_is_padded():
    from transformers import LlamaConfig, LlamaForCausalLM

    batch = {"input_ids": torch.randint(3, 60, (2, 5)), "attention_mask": torch.ones(2, 5, dtype=torch.long)}
    return {
        "model": LlamaForCausalLM(LlamaConfig(**_SIZES)),
        "batch": batch | {"labels": batch["input_ids"]},
        "expect": {"not_examined": "Nothing in this batch is padded"},
    }


def no_mask():
    return {
        "model": nn.Linear(4, 2),
        "batch": torch.randn(3, 4),
        "loss_fn": lambda model, batch: model(batch).square().mean(),
        "expect": {"not_examined": "No padding mask was found"},
    }


class FixedWindow(nn.Module):
    """Reads `lang_tokens` with `lang_pad`, True for padding, and has a position for each of its six places."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(32, 16), nn.Parameter(torch.randn(6, 16))
        self.attention, self.head = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 3)

    def forward(self, lang_tokens, lang_pad):
        x = self.words(lang_tokens) + self.places
        attended = x + self.attention(x, x, x, key_padding_mask=lang_pad, need_weights=False)[0]
        return {"loss": self.head(attended)[~lang_pad].square().mean(), "features": self.head(attended)}


def _padded_window():
    pad = torch.arange(6)[None] >= torch.tensor([6, 4, 2])[:, None]
    return {"lang_tokens": torch.randint(1, 32, (3, 6)).masked_fill(pad, 0), "lang_pad": pad}


def mask_of_another_name_that_is_true_for_padding():
    return {"model": FixedWindow(), "batch": _padded_window()}


class _Reader(nn.Module):
    """Bidirectional attention; `valid` says where the content is."""

    def __init__(self, valid):
        super().__init__()
        self.valid = valid
        self.embedding, self.head = nn.Embedding(64, 16), nn.Linear(16, 3)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, input_ids, attention_mask, labels=None):
        x = self.embedding(input_ids)
        hidden = self.attention(x, x, x, key_padding_mask=~self.valid(attention_mask), need_weights=False)[0]
        return {"features": self.head(x + hidden)}


def _features(model, batch):
    return model(**batch)["features"].square().mean()


def a_model_that_reads_an_inverted_mask_as_it_is_meant():
    """PyTorch's own layers have masks that are True for padding."""
    batch = _batch(labels=False)
    batch["attention_mask"] = 1 - batch["attention_mask"]
    return {"model": _Reader(lambda mask: mask == 0), "batch": batch, "loss_fn": _features}


def mask_of_ones_over_texts_of_a_fixed_width():
    """As a text encoder of an image generator is trained: every prompt has padding, and the model reads it."""
    ids = torch.randint(3, 60, (4, 9))
    for row, length in enumerate((8, 6, 5, 3)):
        ids[row, length:] = 0
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    program = {"model": _Reader(lambda mask: mask == 1), "batch": batch, "loss_fn": _features}
    return program | {"expect": {"not_examined": "Nothing in this batch is padded"}}


def mask_of_ones_over_ids_of_which_zero_is_a_word():
    ids = torch.randint(1, 60, (4, 9))
    ids[1, 6:], ids[2, 4:], ids[3, 2] = 0, 0, 0
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    program = {"model": _Reader(lambda mask: mask == 1), "batch": batch, "loss_fn": _features}
    return program | {"expect": {"not_examined": "Nothing in this batch is padded"}}


def mask_of_ones_in_a_causal_model_padded_on_the_right():
    """No token sees the padding behind it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    batch = _batch()
    batch["attention_mask"] = torch.ones_like(batch["attention_mask"])
    return {"model": LlamaForCausalLM(LlamaConfig(**_SIZES)), "batch": batch}
