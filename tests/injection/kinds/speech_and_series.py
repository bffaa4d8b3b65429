"""Sound, time series, and pictures with words."""

from __future__ import annotations

import random

from injection.architectures import Part, kind
from injection.datasets import series, words
from injection.kinds.language import HUGGING_FACE

FORECAST = """
def compute_loss(model, batch):
    past, future = batch["past_values"].to(device), batch["future_values"].to(device)
    forecast = model(past)
    return F.{loss}(forecast, future)
"""


def _forecast(chance: random.Random) -> str:
    return FORECAST.format(loss=chance.choice(("mse_loss", "l1_loss", "smooth_l1_loss")))


def _sound(entry: str, length: int, labels: str = "labels") -> str:
    return f"""
CLASSES, LENGTH = 3, {length}


class Data(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.label = torch.randint(CLASSES, (count,), generator=generator)
        time = torch.arange(LENGTH) / LENGTH
        speed = 8.0 * (1 + self.label[:, None]) + torch.rand(count, 1, generator=generator)
        self.sound = torch.sin(6.28 * speed * time) + 0.1 * torch.randn(count, LENGTH, generator=generator)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, index):
        sound = self.sound[index]
        sound = (sound - sound.mean()) / (sound.std() + 1e-6)
        return {{"{entry}": sound, "{labels}": self.label[index]}}
"""


@kind
def wav2vec2(chance: random.Random) -> Part:
    model = f"""
def build_model():
    config = Wav2Vec2Config(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers={chance.choice((1, 2))},
        num_attention_heads=4,
        conv_dim=(16, 16),
        conv_stride=(4, 4),
        conv_kernel=(8, 8),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        num_labels=CLASSES,
        classifier_proj_size=16,
        mask_time_prob=0.0,
        layerdrop=0.0,
    )
    return Wav2Vec2ForSequenceClassification(config)
"""
    line = "from transformers import Wav2Vec2Config, Wav2Vec2ForSequenceClassification"
    return Part(model, _sound("input_values", 320), HUGGING_FACE, "classify sound", imports=(line,))


@kind
def whisper(chance: random.Random) -> Part:
    layers = chance.choice((1, 2))
    model = f"""
def build_model():
    config = WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        encoder_layers={layers},
        decoder_layers={layers},
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=8,
        max_source_positions=20,
        max_target_positions=16,
        pad_token_id=PAD,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return WhisperForConditionalGeneration(config)
"""
    data = (
        words(chance)
        + """

TABLE = torch.randn(VOCABULARY, 8, generator=torch.Generator().manual_seed(0))


def collate(rows):
    input_ids, attention_mask = padded(rows)
    labels = input_ids.masked_fill(attention_mask == 0, -100)
    spoken = F.interpolate(TABLE[input_ids].transpose(1, 2), size=40)
    features = spoken + 0.1 * torch.randn(spoken.shape)
    return {"input_features": features, "labels": labels}
"""
    )
    line = "from transformers import WhisperConfig, WhisperForConditionalGeneration"
    return Part(model, data, HUGGING_FACE, "sequence to sequence", imports=(line,))


@kind
def spectrogram_transformer(chance: random.Random) -> Part:
    model = f"""
class Listener(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.window = nn.Parameter(torch.hann_window(32), requires_grad=False)
        self.embed = nn.Linear(17, width)
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout={chance.choice((0.0, 0.1))}, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, {chance.choice((1, 2))}, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, sound):
        frames = sound.unfold(1, 32, 16) * self.window
        x = torch.log(torch.fft.rfft(frames).abs() + 1e-3)
        x = self.embed(x)
        x = self.encoder(x)
        x = x.mean(dim=1)
        return self.head(x)


def build_model():
    return Listener()
"""
    loss = """
def compute_loss(model, batch):
    sound, label = batch["sound"].to(device), batch["label"].to(device)
    logits = model(sound)
    return F.cross_entropy(logits, label)
"""
    return Part(model, _sound("sound", 256, "label"), loss, "classify sound")


@kind
def patch_time_series(chance: random.Random) -> Part:
    model = f"""
def build_model():
    config = PatchTSTConfig(
        num_input_channels=CHANNELS,
        context_length=PAST,
        prediction_length=AHEAD,
        patch_length=6,
        patch_stride=6,
        d_model=16,
        ffn_dim=32,
        num_hidden_layers={chance.choice((1, 2))},
        num_attention_heads=2,
        loss="mse",
        scaling={chance.choice(('"std"', "None"))},
    )
    return PatchTSTForPrediction(config)
"""
    line = "from transformers import PatchTSTConfig, PatchTSTForPrediction"
    return Part(model, series(chance), HUGGING_FACE, "forecast", imports=(line,))


@kind
def recurrent_forecaster(chance: random.Random) -> Part:
    cell = chance.choice(("LSTM", "GRU"))
    width = chance.choice((16, 32))
    model = f"""
class Forecaster(nn.Module):
    def __init__(self, width={width}):
        super().__init__()
        self.rnn = nn.{cell}(CHANNELS, width, batch_first=True)
        self.fc1 = nn.Linear(width, width)
        self.activation = nn.ReLU()
        self.head = nn.Linear(width, AHEAD * CHANNELS)

    def forward(self, past):
        x, _ = self.rnn(past)
        x = self.activation(self.fc1(x[:, -1]))
        return self.head(x).view(-1, AHEAD, CHANNELS)


def build_model():
    return Forecaster()
"""
    return Part(model, series(chance), _forecast(chance), "forecast", rate=3e-3)


@kind
def temporal_convolutions(chance: random.Random) -> Part:
    model = f"""
class CausalConv(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(width, width, 3, dilation=dilation)
        self.activation = nn.{chance.choice(("ReLU", "GELU", "SiLU"))}()

    def forward(self, x):
        h = self.activation(self.conv(F.pad(x, (self.pad, 0))))
        return x + h


class TCN(nn.Module):
    def __init__(self, width={chance.choice((16, 24))}):
        super().__init__()
        self.embed = nn.Conv1d(CHANNELS, width, 1)
        self.blocks = nn.ModuleList([CausalConv(width, dilation) for dilation in (1, 2, 4)])
        self.head = nn.Linear(width, AHEAD * CHANNELS)

    def forward(self, past):
        x = self.embed(past.transpose(1, 2))
        for block in self.blocks:
            x = block(x)
        x = x[:, :, -1]
        return self.head(x).view(-1, AHEAD, CHANNELS)


def build_model():
    return TCN()
"""
    return Part(model, series(chance), _forecast(chance), "forecast", rate=2e-3)


@kind
def clip(chance: random.Random) -> Part:
    layers = chance.choice((1, 2))
    model = f"""
def build_model():
    tower = {{"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": {layers}, "num_attention_heads": 4}}
    config = CLIPConfig(
        text_config={{**tower, "vocab_size": VOCABULARY, "max_position_embeddings": 16, "eos_token_id": 1}},
        vision_config={{**tower, "image_size": 16, "patch_size": 8}},
        projection_dim=16,
    )
    return CLIPModel(config)
"""
    data = (
        words(chance)
        + """

TABLE = torch.rand(VOCABULARY, 3, generator=torch.Generator().manual_seed(0))


def collate(rows):
    input_ids, attention_mask = padded(rows)
    input_ids = input_ids.scatter(1, attention_mask.sum(1, keepdim=True) - 1, 1)
    coarse = TABLE[input_ids[:, :4]].transpose(1, 2).reshape(-1, 3, 2, 2)
    image = F.interpolate(coarse, size=16, mode="bilinear")
    image = (image - 0.5) / 0.25
    return {"input_ids": input_ids, "attention_mask": attention_mask, "pixel_values": image}
"""
    )
    loss = """
def compute_loss(model, batch):
    batch = {name: value.to(device) for name, value in batch.items()}
    return model(**batch, return_loss=True).loss
"""
    line = "from transformers import CLIPConfig, CLIPModel"
    return Part(model, data, loss, "contrast", imports=(line,), declare="coupled_batch=True", loop={"samples": 64})
