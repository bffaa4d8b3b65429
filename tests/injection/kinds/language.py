"""Tokens: language models and classifiers of transformers, and recurrent and convolutional ones of our own."""

from __future__ import annotations

import random

from injection.architectures import Part, kind
from injection.datasets import words_to_continue, words_with_a_class

HUGGING_FACE = """
def compute_loss(model, batch):
    batch = {name: value.to(device) for name, value in batch.items()}
    return model(**batch).loss
"""
SHIFTED = """
def compute_loss(model, batch):
    batch = {name: value.to(device) for name, value in batch.items()}
    logits = model(batch["input_ids"], batch["attention_mask"])
    targets = batch["labels"][:, 1:]
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), targets.flatten(), ignore_index=-100)
"""
CLASSIFY = """
def compute_loss(model, batch):
    input_ids, attention_mask = batch["input_ids"].to(device), batch["attention_mask"].to(device)
    logits = model(input_ids, attention_mask)
    return F.cross_entropy(logits, batch["labels"].to(device))
"""


def _causal(chance: random.Random, family: str, sizes: str, name: str = "") -> Part:
    """A causal language model of transformers, with its own loss."""
    model = (
        f"""
def build_model():
    config = {family}Config({sizes})
    return {name or family}ForCausalLM(config)
"""
        if not name.endswith("Model")
        else f"""
def build_model():
    config = {family}Config({sizes})
    return {name}(config)
"""
    )
    made = name if name.endswith("Model") else f"{name or family}ForCausalLM"
    line = f"from transformers import {family}Config, {made}"
    return Part(model, words_to_continue(chance), HUGGING_FACE, "language model", imports=(line,))


def _llama_sizes(chance: random.Random, more: str = "") -> str:
    width, layers = chance.choice((32, 48)), chance.choice((1, 2, 2, 3))
    keys = chance.choice((2, 4))
    tied = chance.choice(("", ", tie_word_embeddings=True"))
    return (
        f"vocab_size=VOCABULARY, hidden_size={width}, intermediate_size={2 * width}, num_hidden_layers={layers}, "
        f"num_attention_heads=4, num_key_value_heads={keys}, max_position_embeddings=64, pad_token_id=PAD{more}{tied}"
    )


@kind
def llama(chance: random.Random) -> Part:
    return _causal(chance, "Llama", _llama_sizes(chance))


@kind
def qwen3(chance: random.Random) -> Part:
    return _causal(chance, "Qwen3", _llama_sizes(chance, ", head_dim=8"))


@kind
def gemma2(chance: random.Random) -> Part:
    return _causal(chance, "Gemma2", _llama_sizes(chance, ", head_dim=8, query_pre_attn_scalar=8"))


@kind
def mixtral(chance: random.Random) -> Part:
    more = f", num_local_experts={chance.choice((3, 4))}, num_experts_per_tok=2, output_router_logits=True"
    return _causal(chance, "Mixtral", _llama_sizes(chance, more))


@kind
def gpt2(chance: random.Random) -> Part:
    sizes = f"vocab_size=VOCABULARY, n_embd=32, n_layer={chance.choice((1, 2))}, n_head=4, n_positions=32"
    return _causal(chance, "GPT2", sizes, "GPT2LMHeadModel")


@kind
def mamba(chance: random.Random) -> Part:
    sizes = f"vocab_size=VOCABULARY, hidden_size=32, state_size=4, num_hidden_layers={chance.choice((1, 2))}, pad_token_id=PAD"
    return _causal(chance, "Mamba", sizes)


@kind
def bert_masked(chance: random.Random) -> Part:
    model = f"""
def build_model():
    return BertForMaskedLM(BertConfig({_bert_sizes(chance)}))
"""
    data = words_to_continue(chance).replace(
        '    return {"input_ids": input_ids, "att',
        "    hidden = (torch.rand(input_ids.shape) < 0.3) & attention_mask.bool()\n"
        "    hidden[:, 1] = True\n"
        "    labels = labels.masked_fill(~hidden, -100)\n"
        "    input_ids = input_ids.masked_fill(hidden, 2)\n"
        '    return {"input_ids": input_ids, "att',
    )
    return Part(
        model, data, HUGGING_FACE, "masked tokens", imports=("from transformers import BertConfig, BertForMaskedLM",)
    )


def _bert_sizes(chance: random.Random) -> str:
    return (
        f"vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers={chance.choice((1, 2))}, "
        "num_attention_heads=4, max_position_embeddings=32"
    )


@kind
def bert_classifier(chance: random.Random) -> Part:
    pooled = chance.choice(
        (
            "hidden[:, 0]",
            "(hidden * attention_mask[..., None]).sum(dim=1) / attention_mask.sum(dim=1, keepdim=True)",
        )
    )
    model = f"""
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = BertModel(BertConfig({_bert_sizes(chance)}), add_pooling_layer=False)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(32, 3)

    def forward(self, input_ids, attention_mask):
        hidden = self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        pooled = {pooled}
        pooled = self.dropout(pooled)
        return self.head(pooled)


def build_model():
    return Classifier()
"""
    line = "from transformers import BertConfig, BertModel"
    return Part(model, words_with_a_class(chance), CLASSIFY, "classify text", imports=(line,))


@kind
def distilbert_with_labels(chance: random.Random) -> Part:
    model = f"""
def build_model():
    config = DistilBertConfig(vocab_size=VOCABULARY, dim=32, hidden_dim=64, n_layers={chance.choice((1, 2))}, n_heads=4, num_labels=3)
    return DistilBertForSequenceClassification(config)
"""
    line = "from transformers import DistilBertConfig, DistilBertForSequenceClassification"
    return Part(model, words_with_a_class(chance), HUGGING_FACE, "classify text", imports=(line,))


@kind
def t5(chance: random.Random) -> Part:
    model = f"""
def build_model():
    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers={chance.choice((1, 2))},
        num_heads=4,
        decoder_start_token_id=0,
    )
    return T5ForConditionalGeneration(config)
"""
    line = "from transformers import T5Config, T5ForConditionalGeneration"
    return Part(model, words_to_continue(chance), HUGGING_FACE, "sequence to sequence", imports=(line,), rate=2e-3)


@kind
def bart(chance: random.Random) -> Part:
    layers = chance.choice((1, 2))
    model = f"""
def build_model():
    config = BartConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers={layers},
        decoder_layers={layers},
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=32,
        pad_token_id=PAD,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
    )
    return BartForConditionalGeneration(config)
"""
    line = "from transformers import BartConfig, BartForConditionalGeneration"
    return Part(model, words_to_continue(chance), HUGGING_FACE, "sequence to sequence", imports=(line,))


@kind
def small_gpt(chance: random.Random) -> Part:
    dropout = chance.choice((0.0, 0.1))
    model = f"""
class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dropout = nn.Dropout({dropout})

    def forward(self, x, attention_mask):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * self.scale
        allowed = torch.tril(torch.ones(length, length, dtype=torch.bool, device=x.device))
        allowed = allowed & attention_mask[:, None, None, :].bool()
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        weights = self.dropout(scores.softmax(dim=-1))
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x, attention_mask):
        x = x + self.attention(self.norm1(x), attention_mask)
        x = x + self.mlp(self.norm2(x))
        return x


class GPT(nn.Module):
    def __init__(self, width={chance.choice((32, 48))}, depth={chance.choice((1, 2))}, heads=4):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.apply(self.initialise)

    def initialise(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, input_ids, attention_mask):
        x = self.words(input_ids)
        x = x + self.positions(torch.arange(input_ids.shape[1], device=input_ids.device))
        for block in self.blocks:
            x = block(x, attention_mask)
        x = self.norm(x)
        return self.head(x)


def build_model():
    return GPT()
"""
    return Part(model, words_to_continue(chance), SHIFTED, "language model")
