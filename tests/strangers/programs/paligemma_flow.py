"""VLA: PaliGemma prefix (image + instruction) frozen then thawed, flow-matching action expert reading the prefix states; bf16 VLM weights, fp32 expert."""
import math, torch, torch.nn as nn, torch.nn.functional as F
from transformers import PaliGemmaConfig, PaliGemmaForConditionalGeneration
torch.manual_seed(0)
IMG, H, A = 30, 6, 2
cfg = PaliGemmaConfig(vision_config=dict(model_type="siglip_vision_model", hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=8),
                      text_config=dict(model_type="gemma", hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1, head_dim=8, vocab_size=32, pad_token_id=0),
                      image_token_id=IMG, projection_dim=32, hidden_size=32)
class Expert(nn.Module):
    def __init__(self, d=48, ctx=32):
        super().__init__()
        self.inp, self.state, self.ctx = nn.Linear(A, d), nn.Linear(2, d), nn.Linear(ctx, d)
        self.time = nn.Sequential(nn.Linear(32, d), nn.SiLU(), nn.Linear(d, d)); self.pos = nn.Parameter(torch.randn(H + 1, d) * 0.02)
        self.tr = nn.TransformerDecoder(nn.TransformerDecoderLayer(d, 4, 2 * d, 0.0, batch_first=True, norm_first=True), 2); self.out = nn.Linear(d, A)
    def forward(self, ctx, pad, state, xt, t):
        f = t[:, None] * torch.exp(torch.linspace(0, 4, 16)) * 2 * math.pi
        temb = self.time(torch.cat([f.sin(), f.cos()], -1))
        x = torch.cat([self.state(state)[:, None], self.inp(xt)], 1) + self.pos + temb[:, None]
        return self.out(self.tr(x, self.ctx(ctx), memory_key_padding_mask=pad))[:, 1:]
class VLA(nn.Module):
    def __init__(self):
        super().__init__()
        self.vlm = PaliGemmaForConditionalGeneration(cfg).model.to(torch.bfloat16); self.expert = Expert()
    def prefix(self, b):
        h = self.vlm(input_ids=b["input_ids"], pixel_values=b["pixel_values"].bfloat16(), attention_mask=b["attention_mask"], token_type_ids=torch.zeros_like(b["input_ids"])).last_hidden_state
        return h.float(), b["attention_mask"] == 0
    def forward(self, b):
        ctx, pad = self.prefix(b)
        a = b["actions"]; noise = torch.randn_like(a); t = torch.distributions.Beta(1.5, 1.0).sample((len(a),)) * 0.999
        xt = (1 - t)[:, None, None] * a + t[:, None, None] * noise
        return F.mse_loss(self.expert(ctx, pad, b["state"], xt, t), noise - a)
    @torch.no_grad()
    def sample(self, b, steps=8):
        ctx, pad = self.prefix(b); x = torch.randn(len(b["state"]), H, A)
        for i in range(steps):
            t = torch.full((len(x),), 1 - i / steps); x = x - self.expert(ctx, pad, b["state"], x, t) / steps
        return x
def batch(n):
    place = torch.randint(2, (n,)); word = torch.randint(2, (n,)); state = torch.rand(n, 2) * 2 - 1
    px = torch.randn(n, 3, 16, 16) * 0.1
    goals = torch.tensor([[-0.7, 0.7], [0.7, -0.7]])
    for i in range(n):                                           # red block at `place`, blue block at the other side
        px[i, 0, :, 8 * place[i]:8 * place[i] + 8] += 1; px[i, 2, :, 8 * (1 - place[i]):8 * (1 - place[i]) + 8] += 1
    goal = goals[(place + word) % 2]
    u = torch.linspace(1 / H, 1, H)[None, :, None]
    acts = (goal - state)[:, None] * u + 0.02 * torch.randn(n, H, A)
    long = torch.rand(n) < 0.5
    ids = torch.zeros(n, 4 + 5, dtype=torch.long); ids[:, :4] = IMG; ids[:, 4] = 2
    for i in range(n):
        s = [5, 6, 8 + int(word[i])] if long[i] else [8 + int(word[i])]
        ids[i, 5:5 + len(s)] = torch.tensor(s); ids[i, 5 + len(s)] = 3
    return dict(input_ids=ids, attention_mask=(ids != 0).long(), pixel_values=px, state=state, actions=acts)
vla = VLA()
def train(params, steps, name):
    opt = torch.optim.AdamW(params, weight_decay=1e-6)
    for s in range(steps):
        loss = vla(batch(32)); opt.zero_grad(set_to_none=True); loss.backward()
        nn.utils.clip_grad_norm_([p for p in vla.parameters() if p.requires_grad], 1.0); opt.step()
        if s % 30 == 0: print(name, s, round(loss.item(), 4))
vla.vlm.requires_grad_(False)
train([{"params": list(vla.expert.parameters()), "lr": 2e-3}], 90, "expert")
vla.vlm.requires_grad_(True)
train([{"params": list(vla.expert.parameters()), "lr": 1e-3}, {"params": list(vla.vlm.parameters()), "lr": 1e-3}], 90, "joint")
vla.eval(); b = batch(64); print("action error", round((vla.sample(b) - b["actions"]).abs().mean().item(), 3))


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
