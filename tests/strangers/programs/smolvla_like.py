"""SmolVLM (Idefics3-like) tiny, first stage only the connector, second stage connector+text; captions of coloured squares. HF processor not needed."""
import torch, random
from transformers import Idefics3Config, Idefics3ForConditionalGeneration

torch.manual_seed(0); random.seed(0)
IMG, PAD, BOS, EOS = 1, 0, 2, 3
COLORS = {"red": (0.9, -0.9, -0.9), "green": (-0.9, 0.9, -0.9), "blue": (-0.9, -0.9, 0.9), "white": (0.9, 0.9, 0.9)}
PLACES = ["left", "right", "top", "bottom"]
words = {w: i + 4 for i, w in enumerate(["a", "square", "at"] + list(COLORS) + PLACES)}

def image(color, place):
    im = torch.full((3, 32, 32), -0.2) + 0.1 * torch.randn(3, 32, 32)
    ys, xs = {"left": (10, 2), "right": (10, 20), "top": (2, 10), "bottom": (20, 10)}[place]
    im[:, ys:ys + 10, xs:xs + 10] = torch.tensor(COLORS[color])[:, None, None] + 0.05 * torch.randn(3, 10, 10)
    return im

config = Idefics3Config(
    vision_config=dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8),
    text_config=dict(model_type="llama", hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                     vocab_size=32, max_position_embeddings=64, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS),
    image_token_id=IMG, scale_factor=2, pad_token_id=PAD, tie_word_embeddings=False)
model = Idefics3ForConditionalGeneration(config)
n_img = (32 // 8) ** 2 // 4

def collate(pairs):
    ids, labels, mask, pix = [], [], [], []
    longest = 0
    for color, place in pairs:
        text = ["a", color, "square"] if place is None else ["a", color, "square", "at", place]
        t = [words[w] for w in text] + [EOS]
        row = [BOS] + [IMG] * n_img + t
        lab = [-100] * (1 + n_img) + t
        ids.append(row); labels.append(lab); longest = max(longest, len(row))
        pix.append(image(color, place or "left"))
    for r, l in zip(ids, labels):
        k = longest - len(r)
        mask.append([1] * len(r) + [0] * k)
        r += [PAD] * k; l += [-100] * k
    return dict(input_ids=torch.tensor(ids), labels=torch.tensor(labels), attention_mask=torch.tensor(mask), pixel_values=torch.stack(pix)[:, None])

data = [(c, p) for c in COLORS for p in PLACES + [None]] * 12
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, drop_last=True, collate_fn=collate, generator=torch.Generator().manual_seed(0))

def stage(name, trainable, lr, epochs):
    for n, p in model.named_parameters():
        p.requires_grad_(any(n.startswith(t) for t in trainable))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, weight_decay=0.0)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=epochs * len(loader))
    model.train()
    for e in range(epochs):
        total = 0.0
        for b in loader:
            loss = model(**b).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
            opt.step(); sched.step(); opt.zero_grad()
            total += loss.item()
        print(name, e, round(total / len(loader), 4))

stage("connector", ["model.connector", "lm_head"], 3e-3, 2)
stage("language", ["model.connector", "model.text_model", "lm_head"], 2e-3, 3)
stage("all", ["model."  , "lm_head"], 1e-3, 3)


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
