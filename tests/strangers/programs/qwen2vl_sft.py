"""Qwen2-VL tiny, images as pre-flattened patches with image_grid_thw, left-to-right SFT; images of differing sizes; gradient accumulation by token counts."""
import torch
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration
torch.manual_seed(0)
IMG, VS, VE, PAD, EOS = 60, 61, 62, 0, 1
cfg = Qwen2VLConfig(
    text_config=dict(vocab_size=64, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, bos_token_id=2, eos_token_id=EOS, pad_token_id=PAD,
                     rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 2, 2]}, tie_word_embeddings=False),
    vision_config=dict(depth=2, embed_dim=32, hidden_size=48, num_heads=2, mlp_ratio=2, patch_size=4, temporal_patch_size=2, spatial_merge_size=2),
    image_token_id=IMG, vision_start_token_id=VS, vision_end_token_id=VE, video_token_id=63)
model = Qwen2VLForConditionalGeneration(cfg)
gen = torch.Generator().manual_seed(0)

def one():
    gh, gw = (4, 4) if torch.rand((), generator=gen) < 0.5 else (4, 6)
    y = int(torch.randint(4, (), generator=gen)); big = int(gw == 6)
    patch = torch.randn(gh * gw, 3, 2, 4, 4, generator=gen) * 0.2
    patch[:, y % 3] += 1.0 if y < 3 else -1.0
    n = gh * gw // 4
    prompt = [VS] + [IMG] * n + [VE, 10]
    answer = [20 + y, 30 + big, EOS] if y % 2 else [20 + y, EOS]
    return patch.flatten(1), (1, gh, gw), prompt, answer

def collate(rows):
    m = max(len(r[2]) + len(r[3]) for r in rows)
    ids = torch.full((len(rows), m), PAD); lab = torch.full((len(rows), m), -100); att = torch.zeros(len(rows), m, dtype=torch.long)
    for i, (_, _, p, a) in enumerate(rows):
        ids[i, :len(p) + len(a)] = torch.tensor(p + a); lab[i, len(p):len(p) + len(a)] = torch.tensor(a); att[i, :len(p) + len(a)] = 1
    return dict(input_ids=ids, attention_mask=att, labels=lab, pixel_values=torch.cat([r[0] for r in rows]), image_grid_thw=torch.tensor([r[1] for r in rows]),
                mm_token_type_ids=(ids == IMG).long())
data = [one() for _ in range(320)]
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.01)
ACC, step, micro = 2, 0, []
for epoch in range(8):
    perm = torch.randperm(len(data), generator=gen).tolist()
    for k in range(0, len(perm), 8):
        micro.append(collate([data[i] for i in perm[k:k + 8]]))
        if len(micro) < ACC: continue
        count = sum((b["labels"][:, 1:] != -100).sum() for b in micro)
        total = 0.0
        for b in micro:
            labels = b.pop("labels")
            logits = model(**b).logits.float()
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum") / count
            loss.backward(); total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step(); opt.zero_grad(set_to_none=True); micro = []; step += 1
    print(epoch, step, round(total, 4))


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
