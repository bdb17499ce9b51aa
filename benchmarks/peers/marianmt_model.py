"""MarianMT of transformers in PyTorch, of our model's size, trained from scratch.

Its usual recipe: Adam(0.9, 0.98), label smoothing 0.1, inverse square root after a warm-up,
clipping at 5, batches of like length. The rate and the warm-up are those of a small model (1e-3
after 1,000 updates): 16,000 updates of warm-up would not end within the budget. Ids are those of a
published OPUS-MT model: `</s>` first, padding last, where the decoder begins.
"""

import json
import os
from pathlib import Path

import numpy as np
import torch
from transformers import MarianConfig, MarianMTModel

from peers.corpus import END, PAD, UNKNOWN, Task

PEAK, WARMUP = 1e-3, 1000
SIZE = {
    "d_model": 192, "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 768, "decoder_ffn_dim": 768,
}  # fmt: skip


def train(args):
    """Rows of BLEU by minutes of training; saves the model if a folder is given."""
    torch.manual_seed(1)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    task = Task(args)
    theirs, pad = published_ids(task.vocab), task.vocab - 1
    ours = np.argsort(theirs)
    model = MarianMTModel(config(task.vocab))

    def tensor(ids):
        return torch.from_numpy(theirs[ids])

    optimizer = torch.optim.Adam(model.parameters(), lr=PEAK, betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / WARMUP, (WARMUP / (n + 1)) ** 0.5)
    )
    loss_of = torch.nn.CrossEntropyLoss(ignore_index=pad, label_smoothing=0.1)

    def update(source, fed, expected):
        model.train()
        source, fed, expected = (tensor(ids) for ids in (source, fed, expected))
        fed[:, 0] = pad
        logits = model(
            input_ids=source, attention_mask=source != pad, decoder_input_ids=fed, use_cache=False
        ).logits
        loss = loss_of(logits.reshape(-1, task.vocab), expected.reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()

    @torch.inference_mode()
    def decode(source):
        model.eval()
        source = tensor(source)
        found = model.generate(
            input_ids=source, attention_mask=source != pad, num_beams=1, max_new_tokens=48
        )
        return ours[found[:, 1:].numpy()]

    rows = task.timed(update, decode, by_length=True)
    if args.keep:
        save(model, task, theirs, Path(args.keep))
    return rows


def published_ids(vocab):
    """int64 [vocab]: the id of each of our ids in a published model."""
    first = [END, UNKNOWN]
    others = [i for i in range(vocab) if i not in (PAD, *first)]
    ids = np.empty(vocab, "int64")
    ids[[*first, *others, PAD]] = np.arange(vocab)
    return ids


def config(vocab):
    """A MarianConfig of our default size."""
    return MarianConfig(
        vocab_size=vocab, **SIZE, max_position_embeddings=256, dropout=0.1, scale_embedding=True,
        share_encoder_decoder_embeddings=True, activation_function="swish", pad_token_id=vocab - 1,
        eos_token_id=0, forced_eos_token_id=None, decoder_start_token_id=vocab - 1,
    )  # fmt: skip


def save(model, task, ids, folder):
    """Writes a folder like those of published models."""
    model.generation_config.update(num_beams=4, max_length=128)
    model.save_pretrained(folder)
    names = {END: "</s>", UNKNOWN: "<unk>", PAD: "<pad>"}
    pieces = (task.processor.id_to_piece(i) for i in range(task.vocab))
    vocabulary = {names.get(i, piece): int(ids[i]) for i, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(task.spm)
