"""MarianMT of transformers in PyTorch, of our model's size, trained from scratch.

Its usual recipe: Adam(0.9, 0.98), label smoothing 0.1, inverse square root after a warm-up,
clipping at 5, batches of like length. The rate and the warm-up are those of a small model (1e-3
after 1,000 updates): 16,000 updates of warm-up would not end within the budget.
"""

import itertools
import os
import statistics
import time

import torch
from transformers import MarianConfig, MarianMTModel

from benchmarks.bleu_parts.corpus import Task
from training.run.recipes import SMALL

PEAK, WARMUP = 1e-3, 1000


def run(args):
    """Yields BLEU by minutes of training."""
    task, update, decode = made(args)
    yield from task.timed(update, task.by_length, decode)


def trial(args):
    """Yields how long an update takes in this environment."""
    task, update, _ = made(args)
    times = []
    for batch in itertools.islice(task.by_length(0), 25):
        start = time.perf_counter()
        update(*batch)
        times.append(time.perf_counter() - start)
    yield {"seconds": statistics.median(times[5:])}


def made(args):
    """The task, a function that makes an update, and one that translates."""
    torch.manual_seed(1)
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    task = Task(args)
    model = MarianMTModel(marian_config(task))
    optimizer = torch.optim.Adam(model.parameters(), lr=PEAK, betas=(0.9, 0.98), eps=1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / WARMUP, (WARMUP / (n + 1)) ** 0.5)
    )
    loss_of = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)

    def update(source, fed, expected):
        model.train()
        source, fed, expected = (torch.from_numpy(ids).long() for ids in (source, fed, expected))
        logits = model(
            input_ids=source, attention_mask=source != 0, decoder_input_ids=fed, use_cache=False
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
        source = torch.from_numpy(source).long()
        found = model.generate(
            input_ids=source, attention_mask=source != 0, num_beams=1, max_new_tokens=48
        )
        return found.numpy()

    return task, update, decode


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
        pad_token_id=0,
        eos_token_id=task.end,
        forced_eos_token_id=None,
        decoder_start_token_id=task.start,
        bos_token_id=task.start,
    )
