"""LLaVA in miniature: frozen CLIP vision tower, pixel-shuffled patches through an MLP projector into a small Llama; stage 1 trains the projector, stage 2 also the language model.

fault late_unfreeze: DK101
fault bad_merge: DK324
fault image_labels: none
fault projector_nograd: DK105
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM

COLORS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "yellow": (1, 1, 0)}
PLACES = [(0, 0), (0, 1), (1, 0), (1, 1)]
WORDS = ["<pad>", "<s>", "</s>", "describe", "where", ":", "a", "square", "at", "top", "bottom", "left", "right"] + list(COLORS)
W2I = {w: i for i, w in enumerate(WORDS)}


def tokens(s):
    return [W2I[w] for w in s.split()]


class Scenes:
    """Endless drawing of scenes: 16x16 image with one coloured square on noise; the held-out set has its own generator."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def draw(self, n):
        img = 0.3 * torch.rand(n, 3, 16, 16, generator=self.g)
        col = torch.randint(4, (n,), generator=self.g).tolist()
        pos = torch.randint(4, (n,), generator=self.g).tolist()
        ask = torch.randint(2, (n,), generator=self.g).tolist()
        texts = []
        for i in range(n):
            r, c = PLACES[pos[i]]
            name = list(COLORS)[col[i]]
            img[i, :, 8 * r + 2: 8 * r + 6, 8 * c + 2: 8 * c + 6] = torch.tensor(COLORS[name], dtype=torch.float)[:, None, None]
            where = f"{'bottom' if r else 'top'} {'right' if c else 'left'}"
            texts.append(("describe :", f"a {name} square at {where}") if ask[i] else ("where :", where))
        return (img - 0.3) / 0.3, texts, torch.tensor(col) * 4 + torch.tensor(pos)


def tokenise(texts):
    rows = [([1] + tokens(q), tokens(a) + [2]) for q, a in texts]
    w = max(len(q) + len(a) for q, a in rows)
    ids, labels = torch.zeros(len(rows), w, dtype=torch.long), torch.full((len(rows), w), -100)
    mask = torch.zeros(len(rows), w, dtype=torch.long)
    for i, (q, a) in enumerate(rows):
        ids[i, :len(q) + len(a)] = torch.tensor(q + a)
        labels[i, len(q):len(q) + len(a)] = torch.tensor(a)
        mask[i, :len(q) + len(a)] = 1
    return ids, mask, labels


class MiniLlava(nn.Module):
    def __init__(self, vision, lm):
        super().__init__()
        self.vision, self.lm = vision, lm
        c, d = vision.config.hidden_size, lm.config.hidden_size
        self.projector = nn.Sequential(nn.LayerNorm(4 * c), nn.Linear(4 * c, d), nn.GELU(), nn.Linear(d, d))
        self.newline = nn.Parameter(torch.randn(d) * 0.02)

    def image_tokens(self, img):
        with torch.no_grad():
            patches = self.vision(pixel_values=img).last_hidden_state[:, 1:]
        b, _, c = patches.shape
        merged = patches.view(b, 2, 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(b, 4, 4 * c)  #! bad_merge: merged = patches.transpose(1, 2).reshape(b, 4, 4 * c)
        x = self.projector(merged)  #! projector_nograd: with torch.no_grad(): x = self.projector(merged)
        return torch.cat([x, self.newline.expand(b, 1, -1)], dim=1)

    def forward(self, img, ids, mask, labels):
        x = self.image_tokens(img)
        n_img = x.size(1)
        emb = torch.cat([x, self.lm.get_input_embeddings()(ids)], dim=1)
        mask = F.pad(mask, (n_img, 0), value=1)
        labels = F.pad(labels, (n_img, 0), value=-100)  #! image_labels: labels = F.pad(labels, (n_img, 0), value=0)
        return self.lm(inputs_embeds=emb, attention_mask=mask, labels=labels)


def pretrain_parts(scenes):
    """Stand-in for downloaded weights: a tower that knows squares, an LM that knows the captions' language."""
    vision = CLIPVisionModel(CLIPVisionConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                              num_attention_heads=4, image_size=16, patch_size=4))
    probe = nn.Linear(32, 16)
    opt = torch.optim.AdamW([*vision.parameters(), *probe.parameters()], lr=3e-3)
    for _ in range(90):
        img, _, y = scenes.draw(32)
        loss_v = F.cross_entropy(probe(vision(pixel_values=img).last_hidden_state[:, 1:].mean(1)), y)
        opt.zero_grad(); loss_v.backward(); opt.step()
    lm = LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), hidden_size=48, intermediate_size=96, num_hidden_layers=2,
                                      num_attention_heads=4, max_position_embeddings=32, pad_token_id=0, tie_word_embeddings=True))
    opt = torch.optim.AdamW(lm.parameters(), lr=3e-3)
    for _ in range(40):
        ids, mask, labels = tokenise(scenes.draw(32)[1])
        loss_t = lm(input_ids=ids, attention_mask=mask, labels=labels).loss
        opt.zero_grad(); loss_t.backward(); opt.step()
    print(f"pretrained: probe {loss_v.item():.2f}, text {loss_t.item():.2f}")
    return vision.eval().requires_grad_(False), lm


def run_stage(name, model, scenes, opt, steps):
    model.train()
    model.vision.eval()
    log = []
    for _ in range(steps):
        img, texts, _ = scenes.draw(32)
        loss = model(img, *tokenise(texts)).loss
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_([p for g in opt.param_groups for p in g["params"]], 1.0)
        opt.step()
        log.append(loss.item())
    model.eval()
    with torch.no_grad():
        img, texts, _ = Scenes(seed=999).draw(64)
        val = model(img, *tokenise(texts)).loss.item()
    print(f"{name}: loss {log[0]:.3f} -> {log[-1]:.3f}  val {val:.3f}")


def train():
    torch.manual_seed(0)
    scenes = Scenes(seed=1)
    vision, lm = pretrain_parts(scenes)
    model = MiniLlava(vision, lm)
    trainable = lambda: [p for p in model.parameters() if p.requires_grad]

    lm.requires_grad_(False)
    run_stage("stage 1", model, scenes, torch.optim.AdamW(trainable(), lr=3e-3), steps=50)

    lm.requires_grad_(True)  #! late_unfreeze: opt = torch.optim.AdamW(trainable(), lr=1e-3)
    opt = torch.optim.AdamW(trainable(), lr=1e-3)  #! late_unfreeze: lm.requires_grad_(True)
    run_stage("stage 2", model, scenes, opt, steps=60)


WATCH = ()
