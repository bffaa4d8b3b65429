"""Decision Transformer (transformers' model and Trainer) on mixed-quality episodes, with returns-to-go and left padding.

fault mask_inverted: DK303|DK326
fault loss_on_pad: DK309
fault rtg_prefix: none
fault action_lag: DK403|DK404|DK325
"""
import logging
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import DecisionTransformerConfig, DecisionTransformerModel, Trainer, TrainerCallback, TrainingArguments, set_seed

logging.getLogger("transformers").setLevel(logging.ERROR)
CONTEXT, STATE, ACT, MAX_LEN, SCALE = 12, 4, 2, 30, 10.0


def simulate(rng, skill):
    """A boat steering to a harbour; with low skill it steers mostly at random. Reward is the way made good per tick."""
    pos, goal = rng.uniform(-5, 5, 2), rng.uniform(-5, 5, 2)
    s, a, r = [], [], []
    for _ in range(int(rng.integers(14, MAX_LEN))):
        d = goal - pos
        heading = d / (np.linalg.norm(d) + 1e-6) * min(1.0, np.linalg.norm(d))
        act = np.clip(skill * heading + (1 - skill) * rng.normal(0, 0.7, 2), -1, 1)
        nxt = pos + 0.5 * act
        s.append(np.concatenate([pos, goal]))
        a.append(act)
        r.append(np.linalg.norm(d) - np.linalg.norm(goal - nxt))
        pos = nxt
    return {k: np.asarray(v, np.float32) for k, v in (("states", s), ("actions", a), ("rewards", r))}


class Episodes(Dataset):
    def __init__(self, eps, mean, std, seed):
        self.eps, self.mean, self.std = eps, mean, std
        rng = np.random.default_rng(seed)
        self.items = [(i, int(t)) for i, e in enumerate(eps) for t in rng.integers(1, len(e["rewards"]) + 1, 6)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, k):
        i, end = self.items[k]
        e = self.eps[i]
        beg = max(0, end - CONTEXT)
        n, pad = end - beg, CONTEXT - (end - beg)
        rtg = np.cumsum(e["rewards"][::-1])[::-1].copy()  #! rtg_prefix: rtg = np.cumsum(e["rewards"])
        left = lambda x: torch.from_numpy(np.concatenate([np.zeros((pad, *x.shape[1:]), x.dtype), x]))
        mask = left(np.ones(n, np.int64))
        return {
            "states": left((e["states"][beg:end] - self.mean) / self.std),
            "actions": left(e["actions"][beg:end]),
            "rewards": left(e["rewards"][beg:end, None]),
            "returns_to_go": left((rtg[beg:end, None] / SCALE).astype(np.float32)),
            "timesteps": left(np.arange(beg, end)),
            "attention_mask": mask,
        }


class TrainableDT(DecisionTransformerModel):
    def forward(self, **kw):
        mask = kw["attention_mask"]
        net_mask = mask  #! mask_inverted: net_mask = 1 - mask
        out = super().forward(**{**kw, "attention_mask": net_mask, "return_dict": True})
        keep = mask.bool()  #! loss_on_pad: keep = torch.ones_like(mask).bool()
        target = kw["actions"]  #! action_lag: target = torch.cat([torch.zeros_like(kw["actions"][:, :1]), kw["actions"][:, :-1]], 1)
        loss = (out.action_preds[keep] - target[keep]).pow(2).mean()
        return {"loss": loss, "action_preds": out.action_preds}


class Report(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kw):
        for k in ("loss", "eval_loss"):
            if k in (logs or {}):
                print(f"step {state.global_step} {k} {float(logs[k]):.4f}")


@torch.no_grad()
def play(model, mean, std, target_return, episodes=4):
    """Closed loop: ask for a return, take away the rewards as they come."""
    training = model.training
    model.eval()
    rng, total = np.random.default_rng(77), 0.0
    for _ in range(episodes):
        pos, goal = rng.uniform(-5, 5, 2), rng.uniform(-5, 5, 2)
        S, A, R = [], [], [target_return / SCALE]
        for t in range(20):
            S.append((np.concatenate([pos, goal]) - mean) / std)
            A.append(np.zeros(2))  # place for the action to be predicted
            lo = max(0, t + 1 - CONTEXT)
            tens = lambda x: torch.tensor(np.asarray(x[lo:]), dtype=torch.float32)[None]
            steps = torch.arange(lo, t + 1)[None]
            out = model(states=tens(S), actions=tens(A), rewards=torch.zeros(1, t + 1 - lo, 1), returns_to_go=tens(R)[..., None], timesteps=steps, attention_mask=torch.ones_like(steps))
            A[-1] = out["action_preds"][0, -1].numpy().clip(-1, 1)
            nxt = pos + 0.5 * A[-1]
            reward = np.linalg.norm(goal - pos) - np.linalg.norm(goal - nxt)
            R.append(R[-1] - reward / SCALE)
            total, pos = total + reward, nxt
    model.train(training)
    return total / episodes


def train():
    set_seed(0)
    rng = np.random.default_rng(0)
    eps = [simulate(rng, skill) for skill in rng.choice([0.1, 0.5, 0.95], 240)]
    train_eps, eval_eps = eps[:210], eps[210:]
    stacked = np.concatenate([e["states"] for e in train_eps])
    mean, std = stacked.mean(0), stacked.std(0) + 1e-6
    cfg = DecisionTransformerConfig(state_dim=STATE, act_dim=ACT, max_ep_len=MAX_LEN, hidden_size=48, n_layer=2, n_head=2, n_positions=3 * CONTEXT, resid_pdrop=0.05, attn_pdrop=0.05, embd_pdrop=0.05, initializer_range=0.1)
    model = TrainableDT(cfg)
    for head in (model.predict_state, model.predict_return):
        head.requires_grad_(False)  # not trained, as in the paper
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(
            output_dir=out, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, seed=0,
            per_device_train_batch_size=32, per_device_eval_batch_size=64, max_steps=80, learning_rate=3e-3, weight_decay=1e-3,
            warmup_steps=10, lr_scheduler_type="cosine", max_grad_norm=0.5, logging_steps=10, logging_first_step=True,
            eval_strategy="steps", eval_steps=40, remove_unused_columns=False, dataloader_drop_last=True, label_names=["actions"], prediction_loss_only=True,
        )
        trainer = Trainer(model=model, args=args, train_dataset=Episodes(train_eps, mean, std, 1), eval_dataset=Episodes(eval_eps, mean, std, 2), callbacks=[Report()])
        trainer.train()
    for ask in (0.0, 6.0):
        print(f"asked for a return of {ask:.0f}, got {play(model, mean, std, ask):.2f}")


WATCH = ()
