"""MarianMT of transformers in PyTorch, of our model's size, trained from scratch.

Its usual recipe: Adam(0.9, 0.98), label smoothing 0.1, inverse square root after a warm-up,
clipping at 5, batches of like length. The rate and the warm-up are those of a small model (1e-3
after 1,000 updates): 16,000 updates of warm-up would not end within the budget. Ids are those of a
published OPUS-MT model: `</s>` first, padding last, where the decoder begins.
"""

import itertools
import json
import os
import statistics
import time
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from transformers import MarianConfig, MarianMTModel

from benchmarks.bleu_parts.corpus import Task
from training.run.recipes import SMALL

PEAK, WARMUP = 1e-3, 1000


def run(args):
    """Yields BLEU by minutes of training; saves the model if a folder is given."""
    task, model, update, decode = made(args)
    yield from task.timed(update, task.by_length, decode)
    if args.keep:
        save(model, task, Path(args.keep))


def trial(args):
    """Yields how long an update takes in this environment."""
    task, _, update, _ = made(args)
    times = []
    for batch in itertools.islice(task.by_length(0), 25):
        start = time.perf_counter()
        update(*batch)
        times.append(time.perf_counter() - start)
    yield {"seconds": statistics.median(times[5:])}


def made(args):
    """The task, the model, a function that makes an update, and one that translates."""
    torch.manual_seed(1)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    task = Task(args)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = MarianMTModel(marian_config(task)).to(device)
    theirs, pad = published_ids(task), task.vocab - 1
    ours = np.argsort(theirs)

    def tensor(ids):
        return torch.from_numpy(theirs[ids]).to(device)

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
        return ours[found.cpu().numpy()]

    return task, model, update, decode


def published_ids(task):
    """int64 [vocab]: the id of each of our ids in a published model."""
    first = [task.end, task.unknown]
    others = [i for i in range(task.vocab) if i not in (0, *first)]
    ids = np.empty(task.vocab, "int64")
    ids[[*first, *others, 0]] = np.arange(task.vocab)
    return ids


def save(model, task, folder):
    """Writes a folder like those of published models."""
    model.generation_config.update(num_beams=4, max_length=128)
    model.save_pretrained(folder)
    names = {task.end: "</s>", task.unknown: "<unk>", 0: "<pad>"}
    ids = published_ids(task)
    processor = sentencepiece.SentencePieceProcessor(model_proto=task.model)
    pieces = (processor.id_to_piece(i) for i in range(task.vocab))
    vocabulary = {names.get(i, piece): int(ids[i]) for i, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(task.model)


def marian_config(task):
    """A MarianConfig of our default size."""
    return MarianConfig(
        vocab_size=task.vocab,
        d_model=SMALL.sizes["d_model"],
        encoder_layers=SMALL.sizes["encoder_layers"],
        decoder_layers=SMALL.sizes["decoder_layers"],
        encoder_attention_heads=SMALL.sizes["num_heads"],
        decoder_attention_heads=SMALL.sizes["num_heads"],
        encoder_ffn_dim=SMALL.sizes["dff"],
        decoder_ffn_dim=SMALL.sizes["dff"],
        max_position_embeddings=256,
        dropout=0.1,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        activation_function="swish",
        pad_token_id=task.vocab - 1,
        eos_token_id=0,
        forced_eos_token_id=None,
        decoder_start_token_id=task.vocab - 1,
    )
