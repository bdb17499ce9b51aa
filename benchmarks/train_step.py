"""Compares a whole training step with torch and with a model as the tutorial builds it.

    python benchmarks/train_step.py                           # the CPU, TensorFlow backend
    KERAS_BACKEND=jax python benchmarks/train_step.py --gpu   # an NVIDIA GPU, JAX backend

Needs torch in addition to keras_tfmr. Each model trains alone, in a process that loads nothing else
and ends before the next starts. Each keeps freed memory, as our training scripts do, or returns it.
torch runs with one and two threads, which wait in the default way or passively. After a first pass
the best setting of each model takes further turns, each in a new process; a figure is the median of
its turns.
Writes results/train_step.md and .json (or train_step_gpu), where each run replaces its own sizes.
"""

import argparse
import dataclasses
import json
import os
import statistics
import time
from typing import NamedTuple

import measure
import numpy as np

from training.run.memory import keep_freed

VOCAB = 8000
BATCH, LENGTH = 64, 32
TORCH_OF = {False: "torch float32", True: "torch bfloat16 (autocast)"}
# Dense bfloat16 FLOP a second, without sparsity, as the maker states them.
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L4": 121e12, "T4": 65e12}


class Setting(NamedTuple):
    """The threads of torch, since Keras's models use both cores by themselves; and the memory."""

    threads: int = 2
    waiting: str = "default"
    keeps_freed: bool = False

    def __str__(self):
        passive = ", passive waiting" * (self.waiting == "passive")
        return f"{self.threads} threads{passive}" + ", keeps freed memory" * self.keeps_freed

    def environment(self):
        passive = {"OMP_WAIT_POLICY": "PASSIVE"} if self.waiting == "passive" else {}
        return {"OMP_NUM_THREADS": str(self.threads), **passive}


KERAS = [Setting(), Setting(keeps_freed=True)]
TORCH = [
    Setting(threads, waiting, keeps_freed)
    for threads, waiting in ((2, "default"), (2, "passive"), (1, "default"))
    for keeps_freed in (False, True)
]
ON_GPU = (
    "keras_tfmr mixed_bfloat16",
    "keras_tfmr mixed_bfloat16, no attention dropout",
    "torch bfloat16 (autocast)",
)
MODELS = {
    "keras_tfmr float32": KERAS,
    "keras_tfmr mixed_bfloat16": KERAS,
    "torch float32": TORCH,
    "torch bfloat16 (autocast)": TORCH,
    "tutorial's model": KERAS,
    "tutorial's model, key_dim = d_model / heads": KERAS,
}


def batch_of(rows, length, seed=0):
    """Source ids, target ids and labels; rows are from 40 % to 100 % full."""
    rng = np.random.default_rng(seed)

    def ids(lengths):
        filled = np.arange(length) < lengths[:, None]
        return np.where(filled, rng.integers(4, VOCAB, (rows, length)), 0).astype("int32")

    lengths = rng.integers(int(0.4 * length), length + 1, rows)
    return ids(rng.permutation(lengths)), ids(lengths), ids(lengths)


def config_of(size):
    """Separate vocabularies and untied logits, as in torch's model and the tutorial's."""
    from keras_tfmr import TransformerConfig

    return TransformerConfig.preset(
        size, source_vocab=VOCAB, target_vocab=VOCAB, joint_vocab=False, tied_logits=False
    )


def ours(config, batch, policy, jit_compile=False):
    import keras

    from keras_tfmr import LabelSmoothedCrossEntropy, TranslationModel

    keras.config.set_dtype_policy(policy)
    model = TranslationModel(config)
    keras.config.set_dtype_policy("float32")
    return keras_step(model, batch, LabelSmoothedCrossEntropy(0.1), config, (), jit_compile)


def keras_step(model, batch, loss, config, metrics=(), jit_compile=False):
    """A function without arguments that does one step of Adam and returns the loss."""
    import keras

    from keras_tfmr import NoamSchedule

    optimizer = keras.optimizers.Adam(NoamSchedule(config.d_model), beta_2=0.98, epsilon=1e-9)
    model.compile(optimizer, loss, metrics=list(metrics), jit_compile=jit_compile)
    source, target, labels = (keras.ops.convert_to_tensor(ids) for ids in batch)
    return lambda: model.train_on_batch([source, target], labels)


def tutorials(config, batch, key_dim=None):
    from tutorial_model import masked_accuracy, masked_loss, tutorial_model

    model = tutorial_model(config, key_dim)
    return keras_step(model, batch, masked_loss, config, [masked_accuracy])


def torchs(config, batch, task):
    import torch
    from torch_model import TorchTranslator, training_step

    torch.set_num_threads(task["threads"])
    torch.manual_seed(0)
    device, bfloat16 = ("cuda" if task["gpu"] else "cpu"), "bfloat16" in task["name"]
    step = training_step(TorchTranslator(config), batch, bfloat16=bfloat16, device=device)
    return (lambda: float(step())) if task["gpu"] else step  # what float reads is done


def step_of(task, config, batch):
    """The step of one model; TensorFlow is not imported for torch's."""
    name = task["name"]
    if name.startswith("torch"):
        return torchs(config, batch, task)
    import keras

    keras.utils.set_random_seed(0)
    if name.startswith("keras_tfmr"):
        if "no attention dropout" in name:
            config = dataclasses.replace(config, attention_dropout_rate=0.0)
        step = ours(config, batch, name.split(",")[0].split()[1], "auto" if task["gpu"] else False)
        return (lambda: float(step())) if task["gpu"] else step
    return tutorials(
        config, batch, config.d_model // config.num_heads if "key_dim" in name else None
    )


def one(task):
    """Builds a model in its own process and times its steps."""
    if task["keeps_freed"]:
        keep_freed()
    batch, config = batch_of(task["rows"], task["length"]), config_of(task["size"])
    start = time.perf_counter()
    step = step_of(task, config, batch)
    step()
    first, times, processor = time.perf_counter() - start, [], time.process_time()
    while sum(times) < task["seconds"] or len(times) < 3:
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    seconds = statistics.median(times)
    found = {
        "tokens/s": int((batch[2] != 0).sum()) / seconds,
        "seconds": seconds,
        "processor seconds": (time.process_time() - processor) / len(times),
        "first seconds": first,
    }
    if task["gpu"]:
        found |= on_gpu(task["name"], flops(config, task["rows"], task["length"]) / seconds)
    return found


def on_gpu(name, flops):
    """The share of the chip's peak, and the peak of memory."""
    import torch

    chip = torch.cuda.get_device_name()
    peak = next((PEAKS[known] for known in PEAKS if known in chip), float("nan"))
    memory = torch.cuda.max_memory_allocated()
    if not name.startswith("torch"):
        import jax

        memory = jax.devices()[0].memory_stats()["peak_bytes_in_use"]
    return {"chip": chip, "share of peak": flops / peak, "peak GB": memory / 1e9}


def flops(config, rows, length):
    """FLOPs of a step: 2 per weight and token forward, 4 backward, and attention's products."""
    d, dff = config.d_model, config.dff
    encoder = config.encoder_layers * (4 * d * d + 2 * d * dff + 2 * length * d)
    decoder = config.decoder_layers * (8 * d * d + 2 * d * dff + 3 * length * d)
    return 6 * rows * length * (encoder + decoder + d * config.target_vocab)


def timed(task, setting):
    """Runs `one` in its own process and returns its result."""
    backend = {"KERAS_BACKEND": "torch"} if task["name"].startswith("torch") else {}
    environment = {**backend, **setting.environment(), "TF_CPP_MIN_LOG_LEVEL": "2"}
    task = json.dumps({**task, "threads": setting.threads, "keeps_freed": setting.keeps_freed})
    return measure.alone(__file__, "--one", task, environment=environment)


def run(size, names, options):
    """Measures one size; returns {name: {"setting", "turns", and the medians of `one`}}."""
    found, task = {}, {"size": size, "rows": BATCH, "length": LENGTH, "gpu": False}
    for number in range(1 + options.turns):
        for name in names:
            settings = MODELS[name] if number == 0 else [found[name][0]]
            for setting in settings:
                seconds = options.seconds / (1 if number else 2)
                turn = timed({**task, "name": name, "seconds": seconds}, setting)
                print(f"{size}, turn {number}, {name}, {setting}: {turn}", flush=True)
                best = found.setdefault(name, (setting, [turn]))
                if number:
                    best[1].append(turn)
                elif turn["seconds"] < best[1][0]["seconds"]:
                    found[name] = setting, [turn]
    return {
        name: {"setting": str(setting), "turns": len(turns)}
        | {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
        for name, (setting, turns) in found.items()
    }


def run_gpu(size, options):
    """Measures bfloat16 on the GPU; returns {length: {name: result of `one`}}."""
    found = {}
    for length in options.lengths:
        task = {"size": size, "rows": max(1, options.tokens // length), "length": length,
                "gpu": True, "seconds": options.seconds}  # fmt: skip
        found[length] = {name: timed_on_gpu({**task, "name": name}) for name in ON_GPU}
        print(size, length, found[length], flush=True)
    return found


def timed_on_gpu(task):
    """As `timed`; a model that does not fit has no figures."""
    try:
        return timed(task, Setting())
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error) or "out of memory" in str(error):
            return {}
        raise


def page(numbers):
    lines = [
        "# Training step\n",
        f"{numbers['machine']}; {numbers['versions']}.\n",
        f"Batches of {BATCH} × {LENGTH} tokens, rows 40 % to 100 % full, vocabularies of {VOCAB}, "
        "dropout 0.1, label smoothing 0.1, Adam, untied embeddings. Tokens are real target "
        "tokens: padding is not counted. Each model alone, in processes that end; medians of "
        "their turns, each at the best of its settings: with or without keeping freed memory, "
        "torch also with 1 or 2 threads, which wait in the default way or passively. The first "
        "step includes building the model and tracing. `×` is against torch in the same "
        "precision.\n",
    ]
    for size, found in numbers["sizes"].items():
        rows = []
        for name, f in found.items():
            peer = found.get(TORCH_OF["bfloat16" in name])
            ratio = f["tokens/s"] / peer["tokens/s"] if peer else ""
            rows.append([name, f["tokens/s"], ratio, f["seconds"], f["processor seconds"],
                         f["first seconds"], f["setting"]])  # fmt: skip
        lines.append(f"## {size}\n")
        header = ["", "tokens/s", "× torch", "s a step", "processor s", "first step, s", "setting"]
        lines.append(measure.table(header, rows))
    return "\n".join(lines)


def page_gpu(numbers):
    chips = {
        one["chip"]
        for f in numbers["sizes"].values()
        for e in f.values()
        for one in e.values()
        if one
    }
    lines = [
        "# Training step on a GPU\n",
        f"{', '.join(sorted(chips))}; {numbers['versions']}.\n",
        f"Batches of {numbers['tokens']:,} positions, rows 40 % to 100 % full, dropout 0.1; tokens "
        "are real target tokens. torch's attention drops weights within its fused kernel; JAX's "
        "kernel cannot, so ours creates the scores unless `attention_dropout_rate` is 0. The first "
        "step includes compilation.\n",
    ]
    if missing := {"base", "big"} - {*numbers["sizes"]}:
        lines.append(f"Never run: {', '.join(sorted(missing))}.\n")
    columns = ("tokens/s", "share of peak", "peak GB", "first seconds")
    for size, lengths in numbers["sizes"].items():
        rows = [
            [length, name, *(entry.get(key, "out of memory") for key in columns)]
            for length, found in lengths.items()
            for name, entry in found.items()
        ]
        header = ["length", "", "tokens/s", "share of the bfloat16 peak", "peak memory, GB",
                  "first step, s"]  # fmt: skip
        lines += [f"## {size}\n", measure.table(header, rows)]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", nargs="+", default=["tutorial", "base"])
    parser.add_argument("--only", nargs="+", default=list(MODELS), choices=MODELS, metavar="MODEL")
    parser.add_argument("--turns", type=int, default=2, help="turns of each best setting")
    parser.add_argument(
        "--seconds", type=float, default=15, help="seconds of a turn; the first takes half"
    )
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--lengths", nargs="+", type=int, default=[64, 256, 1024, 4096])
    parser.add_argument("--tokens", type=int, default=32768, help="tokens per batch, on the GPU")
    parser.add_argument("--dry", action="store_true", help="print the results, write nothing")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return measure.answer(one(options.one))
    name = "train_step_gpu" if options.gpu else "train_step"
    path = measure.RESULTS / f"{name}.json"
    numbers = json.loads(path.read_text()) if path.exists() else {"sizes": {}}
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    numbers["machine"] = measure.machine()
    if options.gpu:
        numbers["tokens"] = options.tokens
    numbers["versions"] = measure.versions("keras", backend, "torch")
    for size in options.sizes:
        found = run_gpu(size, options) if options.gpu else run(size, options.only, options)
        kept = {} if options.gpu else numbers["sizes"].get(size, {})
        numbers["sizes"][size] = {**kept, **found}
    text = page_gpu(numbers) if options.gpu else page(numbers)
    print(text)
    if not options.dry:
        measure.write(name, text, numbers)


if __name__ == "__main__":
    main()
