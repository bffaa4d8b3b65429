"""Direct preference optimisation of a tiny GPT-2 against a frozen reference copy, after a short supervised stage; all in plain PyTorch.

fault ref_alias: none
fault pads_counted: DK309
fault halves_mixed: none
fault not_shifted: DK325
"""
import copy
import random

import torch
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR
from transformers import GPT2Config, GPT2LMHeadModel

ALPHABET = ["_", "^", "$"] + list("abcdefghijklmnop") + list("0123456789") + ["?", "!"]
ID = {c: i for i, c in enumerate(ALPHABET)}
PAD, BOS, EOS = 0, 1, 2
BETA = 0.2


def make_triples(n, rng):
    """Prompt of letters; polite completions (ending in '!') are preferred, dry ones (digits) are not."""
    triples = []
    for _ in range(n):
        prompt = "".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 6))) + "?"
        good = prompt[0] * rng.randint(1, 2) + rng.choice("abc") + "!" * rng.randint(1, 3)
        bad = "".join(rng.choices("0123456789", k=rng.randint(2, 7)))
        triples.append((prompt, good, bad))
    return triples


def batchify(pairs):
    """[(prompt, completion)] -> ids, attention mask, completion mask"""
    seqs, marks = [], []
    for p, c in pairs:
        head, tail = [BOS] + [ID[x] for x in p], [ID[x] for x in c] + [EOS]
        seqs.append(head + tail)
        marks.append([0] * len(head) + [1] * len(tail))
    w = max(map(len, seqs))
    ids = torch.tensor([s + [PAD] * (w - len(s)) for s in seqs])
    att = torch.tensor([[1] * len(s) + [0] * (w - len(s)) for s in seqs])
    comp = torch.tensor([m + [0] * (w - len(m)) for m in marks])
    return ids, att, comp


def sequence_logps(net, ids, att, comp):
    logits = net(input_ids=ids, attention_mask=att).logits
    logits, target = logits[:, :-1], ids[:, 1:]  #! not_shifted: logits, target = logits[:, 1:], ids[:, 1:]
    picked = F.log_softmax(logits, dim=-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
    mask = comp[:, 1:].to(picked.dtype)  #! pads_counted: mask = torch.ones_like(picked)
    return (picked * mask).sum(-1)


def dpo_loss(policy_lp, ref_lp):
    chosen, rejected = (policy_lp - ref_lp).chunk(2)  #! halves_mixed: chosen, rejected = (policy_lp - ref_lp)[0::2], (policy_lp - ref_lp)[1::2]
    margin = BETA * (chosen - rejected)
    return -F.logsigmoid(margin).mean(), (margin > 0).float().mean(), margin.mean()


def concat(triples):
    return batchify([(p, g) for p, g, _ in triples] + [(p, b) for p, _, b in triples])


def sft(policy, triples, rng, steps=40):
    opt = torch.optim.AdamW(policy.parameters(), lr=3e-3)
    policy.train()
    for _ in range(steps):
        rows = rng.sample(triples, 24)
        ids, att, comp = batchify([(p, rng.choice((g, b))) for p, g, b in rows])
        labels = ids.masked_fill(comp == 0, -100)
        loss = policy(input_ids=ids, attention_mask=att, labels=labels).loss
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"sft done, loss {loss.item():.3f}")


def train():
    torch.manual_seed(21)
    rng = random.Random(21)
    data = list({t[0]: t for t in make_triples(700, rng)}.values())
    rng.shuffle(data)
    heldout, data = data[:64], data[64:]

    policy = GPT2LMHeadModel(GPT2Config(vocab_size=len(ALPHABET), n_positions=24, n_embd=48, n_layer=2, n_head=4,
                                        resid_pdrop=0.05, embd_pdrop=0.05, attn_pdrop=0.05,
                                        bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD))
    sft(policy, data, rng)
    for m in policy.modules():                   # DPO is done without dropout, as in most implementations
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.0

    reference = copy.deepcopy(policy)  #! ref_alias: reference = policy
    reference.eval()
    policy.train()

    opt = torch.optim.AdamW(policy.parameters(), lr=1e-4, weight_decay=0.0)
    sched = LambdaLR(opt, lambda s: min(1.0, (s + 1) / 10))
    losses = []
    step, total = 0, 75
    while step < total:
        rng.shuffle(data)
        for i in range(0, len(data) - 15, 16):
            ids, att, comp = concat(data[i:i + 16])
            with torch.no_grad():
                ref_lp = sequence_logps(reference, ids, att, comp)
            loss, acc, margin = dpo_loss(sequence_logps(policy, ids, att, comp), ref_lp)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
            sched.step()
            losses.append(loss.item())
            step += 1
            if step % 25 == 0:
                print(f"{step:3d} loss {loss.item():.3f} acc {acc.item():.2f} margin {margin.item():+.2f}")
            if step == total:
                break

    policy.eval()
    with torch.no_grad():
        ids, att, comp = concat(heldout)
        val, acc, _ = dpo_loss(sequence_logps(policy, ids, att, comp), sequence_logps(reference, ids, att, comp))
    print(f"dpo loss {losses[0]:.3f} -> {losses[-1]:.3f}; held out {val.item():.3f}, acc {acc.item():.2f}")


WATCH = ()
