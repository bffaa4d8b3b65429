"""Prompt tuning (peft) and prefix of a T5 after full pre-training; then IA3 on the merged base. Copy/reverse tasks; three staged optimizers; label padding -100."""
import warnings; warnings.filterwarnings("ignore")
import random, torch
from transformers import T5Config, T5ForConditionalGeneration
from transformers.optimization import Adafactor
from peft import PromptTuningConfig, IA3Config, get_peft_model, TaskType
torch.manual_seed(0); rnd = random.Random(0)
cfg = T5Config(vocab_size=30, d_model=48, d_ff=96, d_kv=12, num_layers=2, num_decoder_layers=2, num_heads=4, dropout_rate=0.0, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
def batch(n, task):
    rows = [[rnd.randrange(5, 30) for _ in range(rnd.randint(3, 6))] for _ in range(n)]
    src = [[task] + r + [1] for r in rows]; tgt = [(r if task == 2 else r[::-1] if task == 3 else sorted(r)) + [1] for r in rows]
    f = lambda R, v: torch.tensor([r + [v] * (max(map(len, R)) - len(r)) for r in R])
    s = f(src, 0); return dict(input_ids=s, attention_mask=(s != 0).long(), labels=f(tgt, -100))
def fit(model, opt, steps, tasks, name, clip=None):
    model.train(); params = [p for p in model.parameters() if p.requires_grad]
    for i in range(steps):
        loss = model(**batch(32, tasks[i % len(tasks)])).loss; loss.backward()
        if clip: torch.nn.utils.clip_grad_norm_(params, clip)
        opt.step(); opt.zero_grad()
        if i % 25 == 0: print(name, i, round(loss.item(), 4))
base = T5ForConditionalGeneration(cfg)
fit(base, Adafactor(base.parameters(), lr=5e-3, scale_parameter=False, relative_step=False, warmup_init=False), 120, (2, 3), "pre")
pt = get_peft_model(base, PromptTuningConfig(task_type=TaskType.SEQ_2_SEQ_LM, num_virtual_tokens=6, num_layers=2, num_attention_heads=4, token_dim=48))
fit(pt, torch.optim.AdamW([p for p in pt.parameters() if p.requires_grad], lr=3e-2, weight_decay=0.0), 60, (4,), "prompt", 1.0)
base = pt.get_base_model(); base.requires_grad_(True)
ia = get_peft_model(base, IA3Config(task_type=TaskType.SEQ_2_SEQ_LM, target_modules=["k", "v", "wo"], feedforward_modules=["wo"]))
fit(ia, torch.optim.AdamW([p for p in ia.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.0), 60, (4,), "ia3")
print(type(ia.merge_and_unload()).__name__)


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
