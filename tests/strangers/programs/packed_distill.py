"""Distilling a bidirectional LSTM tagger into a small GRU on packed sequences, with speculative acceptance weights.

fault padded_order_tags: none
fault teacher_not_eval: none
fault kl_logits_input: DK316 at "F.kl_div("
fault accuracy_on_pads: none
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

WORDS, TAGS = 24, 4


class Tagger(nn.Module):
    def __init__(self, cell, dim, hidden, bidirectional, p=0.0):
        super().__init__()
        self.emb = nn.Embedding(WORDS, dim)
        self.drop = nn.Dropout(p)
        self.rnn = cell(dim, hidden, bidirectional=bidirectional)
        self.out = nn.Linear(hidden * (2 if bidirectional else 1), TAGS)

    def forward(self, packed):
        """Takes packed word ids, returns packed logits in the same order."""
        h, _ = self.rnn(packed._replace(data=self.drop(self.emb(packed.data))))
        return h._replace(data=self.out(self.drop(h.data)))


def corpus(n, gen):
    """The tag of a word is its class plus the class of the word before it, modulo four."""
    out = []
    for _ in range(n):
        w = torch.randint(WORDS, (int(torch.randint(3, 15, (1,), generator=gen)),), generator=gen)
        c = w % TAGS
        out.append((w, (c + torch.cat([c.new_zeros(1), c[:-1]])) % TAGS))
    return out


def pack(rows):
    lengths = torch.tensor([len(w) for w, _ in rows])
    words, tags = (pad_sequence([r[i] for r in rows]) for i in (0, 1))
    pw = pack_padded_sequence(words, lengths, enforce_sorted=False)
    pt = pack_padded_sequence(tags, lengths, enforce_sorted=False)
    return pw, pt.data  #! padded_order_tags: return pw, torch.cat([t for _, t in rows])


def batches(data, size, gen):
    order = torch.randperm(len(data), generator=gen).tolist()
    for i in range(0, len(order), size):
        yield pack([data[j] for j in order[i:i + size]])


@torch.no_grad()
def accuracy(model, rows):
    model.eval()
    words, _ = pack(rows)
    logits, lengths = pad_packed_sequence(model(words))
    truth = pad_sequence([t for _, t in rows])
    real = torch.arange(len(truth))[:, None] < lengths[None]
    hit = (logits.argmax(-1) == truth)[real]  #! accuracy_on_pads: hit = logits.argmax(-1) == truth
    model.train()
    return hit.float().mean().item()


def speculative_weights(student_logits, teacher_logits, gen):
    """A token drafted from the student is accepted with probability min(1, p_teacher / p_student);
    rejected drafts are where the student errs, so these tokens weigh more in the distillation."""
    ps, pt = student_logits.detach().softmax(-1), teacher_logits.softmax(-1)
    draft = torch.multinomial(ps, 1, generator=gen)
    accept = (pt.gather(1, draft) / ps.gather(1, draft)).clamp(max=1.0).squeeze(1)
    return 1.0 + 2.0 * (torch.rand(accept.shape, generator=gen) > accept).float()


def distill_loss(student_logits, teacher_logits, weights, temp=2.0):
    log_s = (student_logits / temp).log_softmax(-1)  #! kl_logits_input: log_s = (student_logits / temp).softmax(-1)
    p_t = (teacher_logits / temp).softmax(-1)
    per_token = F.kl_div(log_s, p_t, reduction="none").sum(-1) * temp ** 2
    return (per_token * weights).sum() / weights.sum()


def train():
    torch.manual_seed(121)
    gen = torch.Generator().manual_seed(122)
    data, held = corpus(256, gen), corpus(64, gen)
    teacher = Tagger(nn.LSTM, 16, 32, True, p=0.3)
    opt = torch.optim.Adam(teacher.parameters(), lr=1e-2)
    for _ in range(10):
        for words, tags in batches(data, 32, gen):
            opt.zero_grad()
            F.cross_entropy(teacher(words).data, tags).backward()
            opt.step()
    t_acc = accuracy(teacher, held)

    teacher.requires_grad_(False)
    teacher.eval()  #! teacher_not_eval: pass
    student = Tagger(nn.GRU, 8, 24, False)
    opt = torch.optim.Adam(student.parameters(), lr=1e-2)
    curve = []
    for _ in range(10):
        for words, tags in batches(data, 32, gen):
            with torch.no_grad():
                target = teacher(words).data
            logits = student(words).data
            kd = distill_loss(logits, target, speculative_weights(logits, target, gen))
            loss = 0.7 * kd + 0.3 * F.cross_entropy(logits, tags)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_value_(student.parameters(), 1.0)
            opt.step()
            curve.append(loss.item())
    train.score = t_acc, accuracy(student, held)
    return curve


WATCH = ()
