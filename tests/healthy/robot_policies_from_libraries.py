"""Vision-language-action policies: PI0 from transformers, and two others as robot libraries write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PI0Config, PI0ForConditionalGeneration

from healthy.program import STEPS, Program, program


@program
def pi0_with_a_padded_instruction() -> Program:
    """One camera of four patches, five words, and a chunk of four actions."""
    text = {
        "model_type": "gemma",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "vocab_size": 60,
    }
    vision = {
        "model_type": "siglip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 16,
        "patch_size": 8,
        "vision_use_head": False,
    }
    config = PI0Config(
        vlm_config={
            "model_type": "paligemma",
            "text_config": text,
            "vision_config": vision,
            "projection_dim": 32,
            "image_token_id": 50,
        },
        dit_config={**text, "hidden_size": 16},
        chunk_size=4,
        max_state_dim=6,
        max_action_dim=6,
    )
    config.vlm_config.image_token_id = 50
    model = PI0ForConditionalGeneration(config)

    def processor() -> dict[str, Tensor]:
        words = torch.randint(3, 50, (5, 5))
        attention_mask = torch.ones(5, 9, dtype=torch.long)
        for row, length in enumerate([5, 3, 4, 2, 5]):
            words[row, length:], attention_mask[row, 4 + length :] = 0, 0
        return {
            "input_ids": torch.cat([torch.full((5, 4), 50), words], dim=1),
            "attention_mask": attention_mask,
            "pixel_values": torch.randn(5, 1, 3, 16, 16).clamp(-1, 1),
            "pixel_attention_mask": torch.ones(5, 1, dtype=torch.bool),
            "state": torch.randn(5, 6),
            "actions": torch.randn(5, 4, 6),
        }

    optimizer = torch.optim.AdamW(model.parameters(), lr=2.5e-5, betas=(0.9, 0.95), weight_decay=0.01)
    return Program(model, processor, None, optimizer)


class ACT(nn.Module):
    """A chunk decoder with a latent style: a CVAE in training, a zero latent otherwise."""

    def __init__(self, dim: int = 32, chunk: int = 6, action: int = 4, state: int = 4, latent: int = 4) -> None:
        super().__init__()
        self.latent, self.chunk = latent, chunk
        self.vae_encoder_cls_embed = nn.Embedding(1, dim)
        self.vae_encoder_action_input_proj = nn.Linear(action, dim)
        self.vae_encoder = nn.TransformerEncoderLayer(dim, 2, 48, batch_first=True)
        self.vae_encoder_latent_output_proj = nn.Linear(dim, latent * 2)
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, dim, 2, 2))
        self.state_proj, self.latent_proj = nn.Linear(state, dim), nn.Linear(latent, dim)
        self.transformer = nn.Transformer(dim, 2, 1, 1, 48, dropout=0.1, batch_first=True)
        self.decoder_pos_embed = nn.Embedding(chunk, dim)
        self.action_head = nn.Linear(dim, action)

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor | None, Tensor | None]]:
        size, mu, log_sigma_x2 = len(batch["observation.state"]), None, None
        if self.training and "action" in batch:
            cls = self.vae_encoder_cls_embed.weight.expand(size, -1, -1)
            tokens = torch.cat([cls, self.vae_encoder_action_input_proj(batch["action"])], dim=1)
            cls_is_pad = torch.full((size, 1), False, device=tokens.device)
            pad = torch.cat([cls_is_pad, batch["action_is_pad"]], dim=1)
            out = self.vae_encoder(tokens, src_key_padding_mask=pad)[:, 0]
            mu, log_sigma_x2 = self.vae_encoder_latent_output_proj(out).split(self.latent, dim=-1)
            z = mu + log_sigma_x2.div(2).exp() * torch.randn_like(mu)
        else:
            z = torch.zeros(size, self.latent, dtype=torch.float32).to(batch["observation.state"].device)
        image = self.backbone(batch["observation.images.top"]).flatten(2).transpose(1, 2)
        seen = torch.stack([self.latent_proj(z), self.state_proj(batch["observation.state"])], dim=1)
        queries = self.decoder_pos_embed.weight.unsqueeze(0).expand(size, -1, -1)
        return self.action_head(self.transformer(torch.cat([seen, image], dim=1), queries)), (mu, log_sigma_x2)


class ACTPolicy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = ACT()

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        actions_hat, (mu, log_sigma_x2) = self.model(batch)
        l1 = F.l1_loss(batch["action"], actions_hat, reduction="none")
        valid = ~batch["action_is_pad"].unsqueeze(-1)
        l1_loss = (l1 * valid).sum() / (valid.sum() * l1.size(-1)).clamp_min(1)
        loss_dict = {"l1_loss": l1_loss.item()}
        if mu is None:
            return l1_loss, loss_dict
        mean_kld = (-0.5 * (1 + log_sigma_x2 - mu.pow(2) - log_sigma_x2.exp())).sum(-1).mean()
        loss_dict["kld_loss"] = mean_kld.item()
        return l1_loss + mean_kld * 10.0, loss_dict


@program
def chunks_from_a_conditional_autoencoder() -> Program:
    policy = ACTPolicy()
    backbone = [p for n, p in policy.named_parameters() if n.startswith("model.backbone") and p.requires_grad]
    others = [p for n, p in policy.named_parameters() if not n.startswith("model.backbone") and p.requires_grad]
    optimizer = torch.optim.AdamW([{"params": others}, {"params": backbone, "lr": 1e-5}], lr=1e-5, weight_decay=1e-4)

    def draw() -> dict[str, Tensor]:
        action, is_pad = torch.randn(8, 6, 4), torch.zeros(8, 6, dtype=torch.bool)
        for row, length in enumerate([6, 6, 4, 6, 5, 6, 3, 6]):
            is_pad[row, length:] = True
            action[row, length:] = action[row, length - 1]
        return {
            "observation.images.top": torch.randn(8, 3, 16, 16),
            "observation.state": torch.randn(8, 4),
            "action": action,
            "action_is_pad": is_pad,
        }

    return Program(policy, draw, lambda model, batch: model(batch)[0], optimizer)


class SmallVLA(nn.Module):
    """A frozen vision-language trunk whose features a trained expert attends to, with padded action dimensions."""

    def __init__(self, dim: int = 24, chunk: int = 4, max_action_dim: int = 8) -> None:
        super().__init__()
        self.patch, self.words = nn.Conv2d(3, dim, 8, 8), nn.Embedding(40, dim)
        layer = nn.TransformerEncoderLayer(dim, 2, 48, dropout=0.0, batch_first=True, norm_first=True)
        self.vlm = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        for part in (self.patch, self.words, self.vlm):
            part.requires_grad_(False)
        self.state_proj = nn.Linear(max_action_dim, dim)
        self.action_in_proj, self.time_mlp = (
            nn.Linear(max_action_dim, dim),
            nn.Sequential(nn.Linear(dim, dim), nn.SiLU()),
        )
        expert = nn.TransformerDecoderLayer(dim, 2, 48, dropout=0.0, batch_first=True, norm_first=True)
        self.expert, self.action_out_proj = nn.TransformerDecoder(expert, 1), nn.Linear(dim, max_action_dim)
        self.chunk = chunk

    def forward(
        self, images: Tensor, lang_tokens: Tensor, lang_masks: Tensor, state: Tensor, actions: Tensor
    ) -> Tensor:
        noise = torch.randn(actions.shape, dtype=actions.dtype, device=actions.device)
        time = torch.distributions.Beta(1.5, 1.0).sample((len(actions),)).to(actions.device) * 0.999 + 0.001
        x_t = time[:, None, None] * noise + (1 - time[:, None, None]) * actions
        self.vlm.eval()
        with torch.no_grad():
            picture = self.patch(images).flatten(2).transpose(1, 2)
            padded = torch.cat(
                [torch.zeros(*picture.shape[:2], dtype=torch.bool, device=images.device), ~lang_masks], 1
            )
            prefix = self.vlm(torch.cat([picture, self.words(lang_tokens)], 1), src_key_padding_mask=padded)
        angles = time[:, None] * torch.logspace(0, 2, 12, device=time.device)
        embedded = self.action_in_proj(x_t) + self.time_mlp(torch.cat([angles.sin(), angles.cos()], -1))[:, None]
        suffix = torch.cat([self.state_proj(state)[:, None], embedded], 1)
        out = self.expert(suffix, prefix, memory_key_padding_mask=padded)[:, -self.chunk :]
        return F.mse_loss(self.action_out_proj(out), noise - actions, reduction="none")


@program
def expert_on_a_frozen_trunk_with_padded_dimensions() -> Program:
    """Six of eight action dimensions are real; the loss leaves the others out."""
    policy = SmallVLA()
    trained = [p for p in policy.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.95), eps=1e-8)

    def draw() -> dict[str, Tensor]:
        tokens, masks = torch.randint(1, 40, (6, 7)), torch.ones(6, 7, dtype=torch.bool)
        for row, length in enumerate([7, 4, 5, 7, 3, 6]):
            tokens[row, length:], masks[row, length:] = 0, False
        return {
            "images": torch.rand(6, 3, 16, 16) * 2 - 1,
            "lang_tokens": tokens,
            "lang_masks": masks,
            "state": F.pad(torch.randn(6, 6), (0, 2)),
            "actions": F.pad(torch.randn(6, 4, 6), (0, 2)),
        }

    def loss_fn(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        losses = model(**batch)
        return losses[:, :, :6].mean()

    def train(self: Program) -> None:
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
        for _ in range(STEPS):
            policy.train()
            optimizer.zero_grad()
            self.loss(self.draw()).backward()
            torch.nn.utils.clip_grad_norm_(trained, 10.0)
            optimizer.step()
            schedule.step()

    return Program(policy, draw, loss_fn, optimizer, train)
