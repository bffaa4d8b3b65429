"""SimPO-like (reference-free) preference loss on a tiny Qwen2 in bfloat16 weights with fp32 master copies."""
import torch, torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import Qwen2Config, Qwen2ForCausalLM

torch.manual_seed(1)
cfg = Qwen2Config(vocab_size=40, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                  max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
model = Qwen2ForCausalLM(cfg).to(torch.bfloat16)
master = [p.detach().float().clone().requires_grad_() for p in model.parameters()]
opt = torch.optim.AdamW(master, lr=1e-3, weight_decay=0.0)
gen = torch.Generator().manual_seed(5)
BETA, GAMMA = 2.0, 0.5

def triple():
    n = int(torch.randint(3, 6, (1,), generator=gen))
    prompt = torch.cat([torch.tensor([1]), torch.randint(10, 40, (n,), generator=gen), torch.tensor([3])])
    good = torch.cat([prompt[1:-1].flip(0), torch.tensor([2])])          # preferred: the prompt reversed
    bad_len = int(torch.randint(2, 7, (1,), generator=gen))
    bad = torch.cat([torch.randint(10, 40, (bad_len,), generator=gen), torch.tensor([2])])
    return prompt, good, bad

def collate(rows):
    seqs, masks = [], []
    for side in (1, 2):
        for r in rows:
            s = torch.cat([r[0], r[side]])
            m = torch.zeros(len(s)); m[len(r[0]):] = 1
            seqs.append(s); masks.append(m)
    return pad_sequence(seqs, batch_first=True), pad_sequence(masks, batch_first=True), pad_sequence([torch.ones(len(s), dtype=torch.long) for s in seqs], batch_first=True)

def mean_logp(ids, answer, attention):
    logits = model(input_ids=ids, attention_mask=attention).logits[:, :-1].float()
    lp = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    m = answer[:, 1:]
    return (lp * m).sum(1) / m.sum(1)

for step in range(90):
    ids, answer, attention = collate([triple() for _ in range(16)])
    lp = mean_logp(ids, answer, attention)
    chosen, rejected = lp.chunk(2)
    margin = BETA * (chosen - rejected) - GAMMA
    loss = -F.logsigmoid(margin).mean() - 0.2 * chosen.mean()
    model.zero_grad()
    loss.backward()
    for p, m in zip(model.parameters(), master):
        m.grad = p.grad.float()
    torch.nn.utils.clip_grad_norm_(master, 1.0)
    opt.step()
    with torch.no_grad():
        for p, m in zip(model.parameters(), master):
            p.copy_(m)
    if step % 15 == 0:
        print(f"{step} loss {loss.item():.3f} margin {(chosen - rejected).mean().item():.3f} acc {(chosen > rejected).float().mean().item():.2f}")


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
