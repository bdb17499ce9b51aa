"""How long is a whole training step, against torch and against a model as the tutorial builds it?

    OMP_WAIT_POLICY=PASSIVE python benchmarks/train_step.py   # the CPU, TensorFlow backend
    KERAS_BACKEND=jax python benchmarks/train_step.py --gpu   # an NVIDIA GPU, JAX backend

Needs torch beside what keras_tfmr needs. One process holds all models; their steps take turns, and
no thread may spin while it waits (OMP_WAIT_POLICY), for another model is at work by then.
Writes results/train_step.md and .json (or train_step_gpu), where each run replaces its own sizes.
"""

import argparse
import json
import os
import sys
import time

import keras
import measure
import numpy as np
import torch
from torch_model import TorchTranslator, training_step
from tutorial_model import masked_accuracy, masked_loss, tutorial_model

from keras_tfmr import LabelSmoothedCrossEntropy, NoamSchedule, TransformerConfig, TranslationModel

VOCAB = 8000
BATCH, LENGTH = 64, 32
# Dense bfloat16 FLOP a second, without sparsity, as the maker states them.
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L4": 121e12, "T4": 65e12}


def batch_of(rows, length, seed=0):
    """Source ids, target ids and labels; rows are from 40 % to 100 % full."""
    rng = np.random.default_rng(seed)

    def ids(lengths):
        filled = np.arange(length) < lengths[:, None]
        return np.where(filled, rng.integers(4, VOCAB, (rows, length)), 0).astype("int32")

    lengths = rng.integers(int(0.4 * length), length + 1, rows)
    return ids(rng.permutation(lengths)), ids(lengths), ids(lengths)


def config_of(size):
    """Both vocabularies apart and untied logits, as torch and the tutorial have them."""
    return TransformerConfig.preset(
        size, source_vocab=VOCAB, target_vocab=VOCAB, joint_vocab=False, tied_logits=False
    )


def ours(config, batch, policy):
    keras.config.set_dtype_policy(policy)
    model = TranslationModel(config)
    keras.config.set_dtype_policy("float32")
    return keras_step(model, batch, LabelSmoothedCrossEntropy(0.1), config)


def keras_step(model, batch, loss, config, metrics=()):
    """A function without arguments that does one step of Adam and returns the loss."""
    optimizer = keras.optimizers.Adam(NoamSchedule(config.d_model), beta_2=0.98, epsilon=1e-9)
    model.compile(optimizer, loss, metrics=list(metrics), jit_compile="auto" if ON_GPU else False)
    source, target, labels = (keras.ops.convert_to_tensor(ids) for ids in batch)
    return lambda: model.train_on_batch([source, target], labels)


def tutorials(config, batch, key_dim=None):
    model = tutorial_model(config, key_dim)
    return keras_step(model, batch, masked_loss, config, [masked_accuracy])


ON_GPU = "--gpu" in sys.argv
BUILDERS = {  # name: (config, batch) -> step
    "keras_tfmr float32": lambda c, b: ours(c, b, "float32"),
    "keras_tfmr mixed_bfloat16": lambda c, b: ours(c, b, "mixed_bfloat16"),
    "torch float32": lambda c, b: training_step(TorchTranslator(c), b),
    "torch bfloat16 (autocast)": lambda c, b: training_step(TorchTranslator(c), b, bfloat16=True),
    "tutorial's model": tutorials,
    "tutorial's model, key_dim = d_model / heads": lambda c, b: tutorials(
        c, b, c.d_model // c.num_heads
    ),
}


def run_cpu(size, names, rounds, seconds):
    """{name: {"tokens/s", "seconds", "first seconds"}} of one size."""
    config, batch = config_of(size), batch_of(BATCH, LENGTH)
    tokens = int((batch[2] != 0).sum())
    steps, first = {}, {}
    for name in names:
        keras.utils.set_random_seed(0)
        start = time.perf_counter()
        steps[name] = BUILDERS[name](config, batch)
        steps[name]()
        first[name] = time.perf_counter() - start
        print(f"{size}: {name}: built and stepped once in {first[name]:.1f} s", flush=True)
    medians, processor = measure.interleaved(steps, rounds, seconds)
    return {
        name: {
            "tokens/s": tokens / s,
            "seconds": s,
            "processor seconds": processor[name],
            "first seconds": first[name],
        }
        for name, s in medians.items()
    }


def page_cpu(numbers):
    lines = [
        "# Training step\n",
        f"{numbers['machine']}; {numbers['versions']}.\n",
        f"Batches of {BATCH} × {LENGTH} tokens, rows 40 % to 100 % full, vocabularies of {VOCAB}, "
        "dropout 0.1, label smoothing 0.1, Adam, untied embeddings. Tokens are real target "
        "tokens: padding is not counted. Medians of steps that took turns in one process. The "
        "first step includes building the model and tracing. `× torch` is against torch float32.\n",
    ]
    for size, found in numbers["sizes"].items():
        missing = {"seconds": float("nan"), "processor seconds": float("nan")}
        base = found.get("torch float32", missing)
        rows = [
            [
                name,
                f["tokens/s"],
                f["seconds"],
                base["seconds"] / f["seconds"],
                f["processor seconds"],
                base["processor seconds"] / f["processor seconds"],
                f["first seconds"],
            ]
            for name, f in found.items()
        ]
        lines.append(f"## {size}\n")
        header = ["", "tokens/s", "s a step", "× torch", "processor s", "× torch", "first step, s"]
        lines.append(measure.table(header, rows))
    return "\n".join(lines)


def flops(config, rows, length):
    """Of one step: 2 a weight and token forward, twice that backward; attention by its products."""
    d, dff = config.d_model, config.dff
    encoder = config.encoder_layers * (4 * d * d + 2 * d * dff + 2 * length * d)
    decoder = config.decoder_layers * (8 * d * d + 2 * d * dff + 3 * length * d)
    return 6 * rows * length * (encoder + decoder + d * config.target_vocab)


def run_gpu(size, lengths, rounds, tokens_per_batch):
    """bfloat16 on the GPU: {length: {name: {"tokens/s", "share of peak", "peak GB"}}}."""
    import jax

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # torch needs memory too
    device = torch.cuda.get_device_name()
    peak = next((PEAKS[chip] for chip in PEAKS if chip in device), float("nan"))
    config, found = config_of(size), {}
    for length in lengths:
        rows = max(1, tokens_per_batch // length)
        batch = batch_of(rows, length)
        torch.cuda.reset_peak_memory_stats()
        torch_model = TorchTranslator(config)
        torch_step = training_step(torch_model, batch, bfloat16=True, device="cuda")
        keras_tfmr_step = ours(config, batch, "mixed_bfloat16")
        steps = {
            "keras_tfmr mixed_bfloat16": lambda step=keras_tfmr_step: float(step()),
            "torch bfloat16 (autocast)": lambda step=torch_step: float(step()),
        }
        medians, _ = measure.interleaved(steps, rounds)
        memory = {
            "keras_tfmr mixed_bfloat16": jax.devices()[0].memory_stats()["peak_bytes_in_use"],
            "torch bfloat16 (autocast)": torch.cuda.max_memory_allocated(),
        }
        real = int((batch[2] != 0).sum())
        found[length] = {
            name: {
                "tokens/s": real / seconds,
                "share of peak": flops(config, rows, length) / seconds / peak,
                "peak GB": memory[name] / 1e9,
            }
            for name, seconds in medians.items()
        }
        print(size, length, found[length], flush=True)
    return found


def page_gpu(numbers):
    lines = ["# Training step on a GPU\n", f"{numbers['machine']}; {numbers['versions']}.\n"]
    for size, lengths in numbers["sizes"].items():
        rows = [
            [length, name, *entry.values()]
            for length, found in lengths.items()
            for name, entry in found.items()
        ]
        header = ["length", "", "tokens/s", "share of the bfloat16 peak", "peak memory, GB"]
        lines += [f"## {size}\n", measure.table(header, rows)]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", nargs="+", default=["tutorial", "base"])
    parser.add_argument("--only", nargs="+", default=list(BUILDERS), help="which models")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=150, help="enough, once past this")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--lengths", nargs="+", type=int, default=[64, 256, 1024, 4096])
    parser.add_argument("--tokens", type=int, default=32768, help="a batch, on the GPU")
    parser.add_argument("--dry", action="store_true", help="print, write nothing")
    args = parser.parse_args()
    name = "train_step_gpu" if args.gpu else "train_step"
    path = measure.RESULTS / f"{name}.json"
    numbers = json.loads(path.read_text()) if path.exists() else {"sizes": {}}
    numbers["machine"] = torch.cuda.get_device_name() if args.gpu else measure.machine()
    backend = keras.backend.backend()
    numbers["versions"] = measure.versions("keras", backend, "torch")
    for size in args.sizes:
        if args.gpu:
            found = run_gpu(size, args.lengths, args.rounds, args.tokens)
        else:
            found = run_cpu(size, args.only, args.rounds, args.seconds)
        numbers["sizes"][size] = found
    page = page_gpu(numbers) if args.gpu else page_cpu(numbers)
    print(page)
    if not args.dry:
        measure.write(name, page, numbers)


if __name__ == "__main__":
    main()
