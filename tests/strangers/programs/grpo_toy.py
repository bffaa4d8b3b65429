"""GRPO with a tiny Llama: reward = share of tokens that equal the prompt's digit. k samples each prompt, KL to a frozen reference, two inner epochs."""
import copy, torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
cfg = LlamaConfig(vocab_size=14, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32,
                  pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True)
policy = LlamaForCausalLM(cfg)
reference = copy.deepcopy(policy).eval().requires_grad_(False)
opt = torch.optim.AdamW(policy.parameters(), lr=2e-3, weight_decay=0.0)
PROMPTS, K, NEW, CLIP, KL = 8, 8, 6, 0.2, 0.02

def completion_logp(m, seq, attention, start):
    position = (attention.cumsum(-1) - 1).clamp(min=0)
    logits = m(input_ids=seq, attention_mask=attention, position_ids=position).logits[:, start - 1:-1]
    return logits.float().log_softmax(-1).gather(-1, seq[:, start:, None]).squeeze(-1)

@torch.no_grad()
def collect():
    digit = torch.randint(4, 14, (PROMPTS,))
    prompt = torch.stack([torch.ones_like(digit), digit], 1).repeat_interleave(K, 0)
    policy.eval()
    seq = policy.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), do_sample=True, top_k=0, max_new_tokens=NEW, pad_token_id=0)
    policy.train()
    seq = torch.nn.functional.pad(seq, (0, 2 + NEW - seq.shape[1]))
    answer = seq[:, 2:]
    ended = (answer == 2).cumsum(1)
    mask = ((ended - (answer == 2).long()) == 0).float()          # tokens up to and including eos
    target = digit.repeat_interleave(K)[:, None]
    reward = ((answer == target).float() * mask).sum(1) / NEW
    group = reward.view(PROMPTS, K)
    adv = ((group - group.mean(1, keepdim=True)) / (group.std(1, keepdim=True) + 1e-4)).view(-1)
    attention = torch.cat([torch.ones(len(seq), 2), mask], 1).long()
    return seq, attention, mask, adv, reward

for it in range(60):
    seq, attention, mask, adv, reward = collect()
    with torch.no_grad():
        old = completion_logp(policy, seq, attention, 2)
        ref = completion_logp(reference, seq, attention, 2)
    for inner in range(2):
        new = completion_logp(policy, seq, attention, 2)
        ratio = (new - old).exp()
        surrogate = torch.minimum(ratio * adv[:, None], ratio.clamp(1 - CLIP, 1 + CLIP) * adv[:, None])
        kl = (ref - new).exp() - (ref - new) - 1
        loss = -((surrogate - KL * kl) * mask).sum() / mask.sum()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        opt.step()
    if it % 10 == 0:
        print(f"{it} reward {reward.mean().item():.3f} loss {loss.item():.4f}")
print("last reward", round(reward.mean().item(), 3))


def train():
    """The file is a script: all of it runs when it is imported."""


WATCH = ()
