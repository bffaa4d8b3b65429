"""PI0-like policy: SigLIP vision tower and a small Gemma as prefix, an action expert trained by flow matching on chunks of actions.

fault flow_sign: none
fault noise_resampled: none
fault missing_group: DK101
fault image_range: DK301
"""
import torch
from torch import nn
import torch.nn.functional as F
from transformers import GemmaConfig, GemmaModel, SiglipVisionConfig, SiglipVisionModel

HORIZON, ADIM, SDIM = 8, 2, 2
VOCAB = {w: i for i, w in enumerate("<pad> <bos> move the arm to red blue block please now quickly \n".split(" "))}
STEPS, BATCH = 75, 24


def tokenize(sentences):
    ids = [[VOCAB["<bos>"]] + [VOCAB[w] for w in s.split()] + [VOCAB["\n"]] for s in sentences]
    n = max(map(len, ids))
    out = torch.tensor([i + [0] * (n - len(i)) for i in ids])
    return out, out != 0


def make_data(n, gen):
    """Two coloured blocks on a table of 1 m; the instruction says which; actions are velocities in m/s."""
    img = torch.full((n, 3, 32, 32), 40, dtype=torch.uint8)
    cells = torch.stack([torch.randperm(4, generator=gen)[:2] for _ in range(n)])
    for k in range(n):
        for channel, cell in zip((0, 2), cells[k].tolist()):
            r, q = divmod(cell, 2)
            img[k, :, r * 16:r * 16 + 16, q * 16:q * 16 + 16] = 20
            img[k, channel, r * 16:r * 16 + 16, q * 16:q * 16 + 16] = 230
    which = torch.randint(0, 2, (n,), generator=gen)
    cell = cells.gather(1, which[:, None])[:, 0]
    goal = torch.stack([(cell % 2) / 2 + 0.25, (cell // 2) / 2 + 0.25], -1).float()
    state = torch.rand(n, SDIM, generator=gen)
    ramp = torch.linspace(1.3, 0.7, HORIZON)[None, :, None]
    actions = (goal - state)[:, None] * ramp + 0.01 * torch.randn(n, HORIZON, ADIM, generator=gen)
    tails = ["", " please", " now", " please quickly"]
    pick = torch.randint(0, 4, (n,), generator=gen).tolist()
    texts = [f"move the arm to the {('red', 'blue')[w]} block{tails[p]}" for w, p in zip(which.tolist(), pick)]
    ids, mask = tokenize(texts)
    return dict(image=img, state=state, actions=actions, ids=ids, mask=mask)


class ExpertBlock(nn.Module):
    """Bidirectional attention of the suffix over [prefix, suffix], adaLN-modulated by the flow time."""

    def __init__(self, d, d_prefix, heads=4):
        super().__init__()
        self.kv_prefix = nn.Linear(d_prefix, d, bias=False)
        self.n1, self.n2 = nn.LayerNorm(d, elementwise_affine=False), nn.LayerNorm(d, elementwise_affine=False)
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))
        self.mod = nn.Linear(d, 4 * d)
        nn.init.normal_(self.mod.weight, std=0.02)

    def forward(self, x, prefix, pad, temb):
        s1, b1, s2, b2 = self.mod(F.silu(temb))[:, None].chunk(4, -1)
        h = self.n1(x) * (1 + s1) + b1
        kv = torch.cat([self.kv_prefix(prefix), h], 1)
        full_pad = torch.cat([pad, pad.new_zeros(x.shape[:2])], 1)
        x = x + self.attn(h, kv, kv, key_padding_mask=full_pad, need_weights=False)[0]
        return x + self.mlp(self.n2(x) * (1 + s2) + b2)


class Pi0(nn.Module):
    def __init__(self, d=64, dx=64):
        super().__init__()
        self.vision = SiglipVisionModel(SiglipVisionConfig(hidden_size=d, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8, vision_use_head=False))
        self.projector = nn.Linear(d, d)
        self.lm = GemmaModel(GemmaConfig(vocab_size=len(VOCAB), hidden_size=d, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1, head_dim=16, pad_token_id=0, initializer_range=0.1))
        self.expert = nn.ModuleList(ExpertBlock(dx, d) for _ in range(2))
        self.state_in, self.action_in, self.action_out = nn.Linear(SDIM, dx), nn.Linear(ADIM, dx), nn.Linear(dx, ADIM)
        self.time_mlp = nn.Sequential(nn.Linear(32, dx), nn.SiLU(), nn.Linear(dx, dx))
        self.pos = nn.Parameter(torch.randn(1, HORIZON + 1, dx) * 0.02)
        self.register_buffer("freqs", torch.logspace(0, 2.5, 16))

    def embed_prefix(self, image, ids, mask):
        pixels = image.float() / 127.5 - 1.0  #! image_range: pixels = image.float()
        img = self.projector(self.vision(pixel_values=pixels).last_hidden_state)
        mask = torch.cat([mask.new_ones(img.shape[:2]), mask], 1)
        emb = torch.cat([img, self.lm.embed_tokens(ids)], 1)
        out = self.lm(inputs_embeds=emb, attention_mask=mask.long(), output_hidden_states=True, use_cache=False)
        return out.hidden_states[1:], ~mask

    def velocity(self, prefix, pad, state, x_t, t):
        ang = t[:, None] * self.freqs
        temb = self.time_mlp(torch.cat([ang.sin(), ang.cos()], -1))
        x = torch.cat([self.state_in(state)[:, None], self.action_in(x_t)], 1) + self.pos
        for block, hidden in zip(self.expert, prefix):
            x = block(x, hidden, pad, temb)
        return self.action_out(x[:, 1:])

    def forward(self, image, ids, mask, state, actions):
        noise = torch.randn_like(actions)
        t = torch.distributions.Beta(1.5, 1.0).sample((len(actions),)) * 0.999 + 0.001
        x_t = t[:, None, None] * noise + (1 - t[:, None, None]) * actions
        target = noise - actions  #! flow_sign: target = actions - noise  #! noise_resampled: target = torch.randn_like(actions) - actions
        prefix, pad = self.embed_prefix(image, ids, mask)
        return F.mse_loss(self.velocity(prefix, pad, state, x_t, t), target)

    @torch.no_grad()
    def sample(self, image, ids, mask, state, n=8):
        prefix, pad = self.embed_prefix(image, ids, mask)
        x = torch.randn(len(state), HORIZON, ADIM)
        for k in range(n):
            t = torch.full((len(state),), 1 - k / n)
            x = x - self.velocity(prefix, pad, state, x, t) / n
        return x


EXPERT_PARTS = ("projector.", "expert.", "state_in.", "action_in.", "action_out.", "time_mlp.", "pos")  #! missing_group: EXPERT_PARTS = ("projector.", "action_expert.", "state_in.", "action_in.", "action_out.", "time_mlp.", "pos")


def param_groups(model):
    """Backbone at a lower rate; no weight decay on biases, norms and position embeddings."""
    backbone, decay, plain = [], [], []
    for name, p in model.named_parameters():
        if name.startswith(("vision.", "lm.")):
            backbone.append(p)
        elif name.startswith(EXPERT_PARTS):
            (decay if p.ndim >= 2 and name != "pos" else plain).append(p)
    return [{"params": backbone, "lr": 1e-3, "weight_decay": 0.0}, {"params": decay, "lr": 2e-3, "weight_decay": 1e-4}, {"params": plain, "lr": 2e-3, "weight_decay": 0.0}]


@torch.no_grad()
def validate(model, data):
    model.eval()
    batch = {k: v for k, v in data.items() if k != "actions"}
    err = (model.sample(**batch) - data["actions"]).abs().mean().item()
    model.train()
    return err


def train():
    torch.manual_seed(0)
    train_set = make_data(768, torch.Generator().manual_seed(1))
    val_set = make_data(64, torch.Generator().manual_seed(2))
    mean, std = train_set["actions"].mean((0, 1)), train_set["actions"].std((0, 1))
    for d in (train_set, val_set):
        d["actions"] = (d["actions"] - mean) / std
        d["state"] = 2 * d["state"] - 1
    model = Pi0()
    opt = torch.optim.AdamW(param_groups(model), betas=(0.9, 0.95))
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=[g["lr"] for g in opt.param_groups], total_steps=STEPS, pct_start=0.1)
    gen = torch.Generator().manual_seed(3)
    model.train()
    order, window = torch.randperm(768, generator=gen), []
    for step in range(STEPS):
        if len(order) < BATCH:
            order = torch.randperm(768, generator=gen)
        idx, order = order[:BATCH], order[BATCH:]
        loss = model(**{k: v[idx] for k, v in train_set.items()})
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        window = (window + [loss.item()])[-10:]
        if step % 10 == 9 or step == 0:
            print(f"step {step:3d} flow loss {sum(window) / len(window):.3f}")
    print(f"val action error {validate(model, val_set):.3f} (normalised units)")


WATCH = ()
