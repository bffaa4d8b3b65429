"""A tiny GPT-2 learns a text in overlapping blocks; the model shifts the labels itself.

fault shifted_twice: DK314|DK325 at here|input:labels
"""
import torch
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

torch.manual_seed(0)
text = ("the robot picks the red cube and places it on the green plate . then the robot opens the drawer . " * 60).split()
vocab = {w: i for i, w in enumerate(sorted(set(text)))}
inv = {i: w for w, i in vocab.items()}
stream = torch.tensor([vocab[w] for w in text])
BLOCK = 16


def blocks(stream):
    out = []
    for i in range(0, len(stream) - BLOCK - 1, 7):
        chunk = stream[i:i + BLOCK + 1]
        out.append({"input_ids": chunk[:-1], "labels": chunk[:-1]})  #! shifted_twice: out.append({"input_ids": chunk[:-1], "labels": chunk[1:]})
    return out


def train():
    loader = DataLoader(blocks(stream), batch_size=16, shuffle=True)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(vocab), n_positions=64, n_embd=48, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0))
    EPOCHS = 12
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    scheduler = get_linear_schedule_with_warmup(optimizer, 5, EPOCHS * len(loader))
    for epoch in range(EPOCHS):
        model.train()
        for batch in loader:
            out = model(**batch)
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if epoch % 4 == 3:
            print("epoch", epoch, "loss", round(out.loss.item(), 3))

    model.eval()
    prompt = stream[:4][None]
    gen = model.generate(prompt, max_new_tokens=8, do_sample=False, attention_mask=torch.ones_like(prompt), pad_token_id=0, eos_token_id=None)
    print("generated:", " ".join(inv[int(i)] for i in gen[0]))
    print("next-token accuracy of the continuation:", (gen[0, 4:] == stream[4:12]).float().mean().item())


WATCH = ()
