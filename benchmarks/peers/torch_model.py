"""torch.nn.Transformer with embeddings, positions and logits, for comparison."""

import math

import torch
from torch import nn


class TorchTranslator(nn.Module):
    """The same model as ours; maps source and target ids to logits."""

    def __init__(self, config, max_length=4096):
        super().__init__()
        d = config.d_model
        self.scale = math.sqrt(d)
        self.source = nn.Embedding(config.source_vocab, d, padding_idx=0)
        self.target = nn.Embedding(config.target_vocab, d, padding_idx=0)
        angles = torch.arange(max_length)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
        table = torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(max_length, d)
        self.register_buffer("positions", table)
        self.dropout = nn.Dropout(config.dropout_rate)
        self.transformer = nn.Transformer(
            d_model=d,
            nhead=config.num_heads,
            num_encoder_layers=config.encoder_layers,
            num_decoder_layers=config.decoder_layers,
            dim_feedforward=config.dff,
            dropout=config.dropout_rate,
            batch_first=True,
        )
        self.logits = nn.Linear(d, config.target_vocab)

    def forward(self, source, target):
        length = target.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        padding = source == 0  # True = may not attend
        x = self.transformer(
            self.dropout(self.source(source) * self.scale + self.positions[: source.shape[1]]),
            self.dropout(self.target(target) * self.scale + self.positions[:length]),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            tgt_key_padding_mask=target == 0,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return self.logits(x)


def training_step(model, batch, *, bfloat16=False, device="cpu"):
    """A function without arguments that does one step of Adam and returns the loss."""
    model = model.to(device).train()
    options = {"betas": (0.9, 0.98), "eps": 1e-9, "fused": True}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **options)
    loss_of = nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
    source, target, labels = (torch.as_tensor(ids, device=device).long() for ids in batch)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=bfloat16):
            logits = model(source, target)
            loss = loss_of(logits.reshape(-1, logits.shape[-1]).float(), labels.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
