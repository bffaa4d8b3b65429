"""Small Mamba language model (transformers) on synthetic arithmetic-like text; bf16 autocast, warmup+cosine, EMA for evaluation."""
import copy, math, random
import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import MambaConfig, MambaForCausalLM

torch.manual_seed(0); random.seed(0)
VOCAB = "0123456789+=;"
stoi = {c: i + 1 for i, c in enumerate(VOCAB)}     # 0 = pad

def sample(rng):
    a, b = rng.randrange(10), rng.randrange(10)
    return f"{a}+{b}={(a + b) % 10};"

def make(n, rng, length=24):
    rows = []
    for _ in range(n):
        s = ""
        while len(s) < length:
            s += sample(rng)
        rows.append([stoi[c] for c in s[:length]])
    return torch.tensor(rows)

rng = random.Random(1)
train, held = make(512, rng), make(64, rng)
config = MambaConfig(vocab_size=len(VOCAB) + 1, hidden_size=48, state_size=8, num_hidden_layers=2, expand=2, conv_kernel=4,
                     pad_token_id=0, bos_token_id=0, eos_token_id=0, use_mambapy=False, time_step_rank=4)
model = MambaForCausalLM(config)
ema = copy.deepcopy(model).requires_grad_(False).eval()

decay = [p for n, p in model.named_parameters() if p.ndim >= 2 and "A_log" not in n and "embed" not in n]
ids = {id(p) for p in decay}
rest = [p for p in model.parameters() if id(p) not in ids]
opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=4e-3, betas=(0.9, 0.95))
STEPS, WARM = 80, 8
sched = LambdaLR(opt, lambda s: min(1, (s + 1) / WARM) * 0.5 * (1 + math.cos(math.pi * min(1, s / STEPS))))

@torch.no_grad()
def evaluate(m):
    m.eval()
    loss = m(input_ids=held, labels=held).loss.item()
    return loss

g = torch.Generator().manual_seed(3)
step = 0
while step < STEPS:
    for idx in torch.randperm(len(train), generator=g).split(16):
        batch = train[idx]
        model.train()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(input_ids=batch, labels=batch).loss
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step(); sched.step()
        with torch.no_grad():
            for p, q in zip(model.parameters(), ema.parameters()):
                q.lerp_(p, 0.1)
        if step % 20 == 0:
            print(f"{step:4d} loss {loss.item():.4f} held {evaluate(model):.4f}")
        step += 1
        if step == STEPS:
            break
print(f"ema held-out loss {evaluate(ema):.4f}")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
