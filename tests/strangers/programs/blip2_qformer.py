"""BLIP-2: vision tower and OPT frozen, only Q-Former, queries and projection are trained. bf16 frozen towers, fp32 trained part; watched in code."""
import torch, random, sys
from transformers import Blip2Config, Blip2ForConditionalGeneration, Blip2VisionConfig, Blip2QFormerConfig, OPTConfig
try:
    import debugkit
except ImportError:
    debugkit = None

torch.manual_seed(0); random.seed(0)
IMG, NQ = 50, 4
vision = Blip2VisionConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=4)
qf = Blip2QFormerConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, encoder_hidden_size=32, vocab_size=51)
text = OPTConfig(vocab_size=51, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=32, word_embed_proj_dim=32,
                 pad_token_id=1, bos_token_id=2, eos_token_id=2)
cfg = Blip2Config(vision_config=vision.to_dict(), qformer_config=qf.to_dict(), text_config=text.to_dict(), num_query_tokens=NQ, image_token_index=IMG)
model = Blip2ForConditionalGeneration(cfg)
for tower in (model.vision_model, model.language_model):
    tower.requires_grad_(False)
COLS = torch.tensor([[1., -1, -1], [-1, 1, -1], [-1, -1, 1], [1, 1, -1]])

def batch(n):
    c = torch.randint(4, (n,)); s = torch.randint(2, (n,))
    im = torch.randn(n, 3, 16, 16) * 0.1 + COLS[c][:, :, None, None] * 0.8
    im[s == 1, :, ::4] *= -0.5
    ids = torch.full((n, NQ + 4), IMG)
    ids[:, NQ] = 2; ids[:, NQ + 1] = 10 + c; ids[:, NQ + 2] = 20 + s; ids[:, NQ + 3] = 2
    labels = ids.clone(); labels[:, :NQ + 1] = -100
    return dict(pixel_values=im, input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels)

params = [p for p in model.parameters() if p.requires_grad]
opt = torch.optim.AdamW(params, 3e-3, weight_decay=0.02)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 120)
model.train(); model.vision_model.eval(); model.language_model.eval()

def loop():
    for step in range(120):
        b = batch(16)
        loss = model(**b).loss
        opt.zero_grad(); loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step(); sched.step()
        if step % 24 == 0: print(step, round(loss.item(), 4))

if "--watch" in sys.argv:
    print(debugkit.check(model, batch(8), optimizer=opt))
    with debugkit.watch(model, opt) as run: loop()
    print(run.report)
else:
    loop()


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
