"""A Bradley-Terry reward model labels sampled pairs, then DPO tunes a tiny GPT-2 against a frozen reference.

fault ref_is_policy: none
fault wrong_end_masked: none
fault shift_missing: none
fault reward_pad_end: none
"""
import copy
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

PAD, BOS, V, P_LEN, R_MAX = 0, 1, 20, 3, 6


def tiny_config():
    return GPT2Config(vocab_size=V, n_positions=16, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0,
                      attn_pdrop=0.0, bos_token_id=BOS, eos_token_id=PAD, pad_token_id=PAD)


def responses(n, g):
    """Each row: BOS + prompt + a response of 3 to 6 tokens, right padded."""
    ids = torch.randint(2, V, (n, 1 + P_LEN + R_MAX), generator=g)
    ids[:, 0] = BOS
    length = 1 + P_LEN + torch.randint(3, R_MAX + 1, (n, 1), generator=g)
    mask = torch.arange(ids.shape[1])[None] < length
    return ids.masked_fill(~mask, PAD), mask.long()


def hidden_taste(ids, mask):
    """The rater likes high tokens in the response and dislikes length a little."""
    body = mask[:, 1 + P_LEN:]
    return (ids[:, 1 + P_LEN:].float() * body).sum(1) / body.sum(1) - 0.2 * body.sum(1)


class RewardModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.score = GPT2Model(tiny_config()), torch.nn.Linear(32, 1, bias=False)

    def forward(self, ids, mask):
        h = self.trunk(input_ids=ids, attention_mask=mask).last_hidden_state
        last = mask.sum(1) - 1
        return self.score(h[torch.arange(len(ids)), last]).squeeze(-1)  #! reward_pad_end: return self.score(h[:, -1]).squeeze(-1)


def pairs(prompts_from, g, rate):
    """Two responses to the same prompt; returns chosen and rejected according to `rate`."""
    (a, ma), (b, mb) = responses(prompts_from, g), responses(prompts_from, g)
    b[:, :1 + P_LEN] = a[:, :1 + P_LEN]
    win = (rate(a, ma) > rate(b, mb))[:, None]
    return (torch.where(win, a, b), torch.where(win, ma, mb)), (torch.where(win, b, a), torch.where(win, mb, ma))


def response_logp(model, ids, mask):
    logits = model(input_ids=ids, attention_mask=mask).logits
    logp = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)  #! shift_missing: logp = logits[:, 1:].log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    keep = mask[:, 1:].clone()
    keep[:, :P_LEN] = 0  #! wrong_end_masked: keep[:, -P_LEN:] = 0
    return (logp * keep).sum(-1)


def train():
    torch.manual_seed(61)
    g = torch.Generator().manual_seed(62)
    rm = RewardModel()
    opt = torch.optim.AdamW(rm.parameters(), lr=2e-3)
    rm_log, dpo_log = [], []
    for _ in range(60):
        good, bad = pairs(48, g, hidden_taste)
        margin = rm(*good) - rm(*bad)
        loss = -F.logsigmoid(margin).mean()
        opt.zero_grad(); loss.backward(); opt.step()
        rm_log.append(loss.item())

    rm.eval().requires_grad_(False)
    policy = GPT2LMHeadModel(tiny_config())
    reference = copy.deepcopy(policy).eval().requires_grad_(False)  #! ref_is_policy: reference = policy
    opt = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: min(1.0, (k + 1) / 8))
    for _ in range(50):
        chosen, rejected = pairs(48, g, rm)
        ids, mask = torch.cat([chosen[0], rejected[0]]), torch.cat([chosen[1], rejected[1]])
        with torch.no_grad():
            base = response_logp(reference, ids, mask)
        ratio = response_logp(policy, ids, mask) - base
        up, down = ratio.chunk(2)
        loss = -F.logsigmoid(0.1 * (up - down)).mean()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        opt.step()
        warm.step()
        dpo_log.append(loss.item())
    train.score = sum(rm_log[:5]) / 5, sum(rm_log[-5:]) / 5
    return dpo_log


WATCH = ()
