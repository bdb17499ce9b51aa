"""Compares a training step with that of the same model in PyTorch.

    python benchmarks/train_step.py                           # the CPU, TensorFlow backend
    KERAS_BACKEND=jax python benchmarks/train_step.py --gpu   # an NVIDIA GPU, JAX backend

Needs torch beside keras_tfmr. We keep freed memory, as our training scripts do; torch keeps it or
returns it. torch runs uncompiled with its fused Adam: on two cores of a busy EPYC, `torch.compile`
took 2 to 3 minutes, and then 1.5 times the processor time of a step. Writes results/train_step.md
and .json (or train_step_gpu).
"""

import os
import time

import harness
import numpy as np

from training.command.scripts import keep_freed_memory

VOCAB, BATCH, LENGTH = 8000, 64, 32
OURS = {"keeps freed memory": True}
PEERS = {"keeps freed memory": True, "returns it": False}
SIDES = {
    "keras_tfmr float32": OURS,
    "keras_tfmr mixed_bfloat16": OURS,
    "torch float32": PEERS,
    "torch bfloat16 (autocast)": PEERS,
}
ON_GPU = (
    "keras_tfmr mixed_bfloat16", "keras_tfmr mixed_bfloat16, no attention dropout",
    "torch bfloat16 (autocast)",
)  # fmt: skip
ON_GPU_TOKENS, ON_GPU_LENGTHS = 32768, (64, 256, 1024)  # positions of a batch, of a text
# {title of a column: figure}.
ON_CPU_ALONE = {"processor seconds a step": "processor_seconds", "setting": "setting"}
ON_GPU_ALONE = {"fraction of the peak": "fraction_of_peak", "memory, GB": "peak_gb"}
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


def step_of(name, size, batch, gpu):
    """A function without arguments that does one step of Adam and returns the loss."""
    from keras_tfmr import TransformerConfig

    config = TransformerConfig.preset(
        size, source_vocab=VOCAB, target_vocab=VOCAB, joint_vocab=False, tied_logits=False
    )
    if name.startswith("torch"):
        import torch
        from peers.torch_model import TorchTranslator, training_step

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 2)))
        torch.manual_seed(0)
        device, bfloat16 = "cuda" if gpu else "cpu", "bfloat16" in name
        step = training_step(TorchTranslator(config), batch, bfloat16=bfloat16, device=device)
        return (lambda: float(step())) if gpu else step  # what float reads is done
    import keras

    from keras_tfmr import LabelSmoothedCrossEntropy, NoamSchedule, Transformer
    from training.run.optimizer import Adam

    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(name.split(",")[0].split()[1])
    if "no attention dropout" in name:
        config = config.replace(attention_dropout_rate=0.0)
    model, loss = Transformer(config), LabelSmoothedCrossEntropy(label_smoothing=0.1)
    keras.config.set_dtype_policy("float32")
    optimizer = Adam(NoamSchedule(config.d_model), beta_2=0.98, epsilon=1e-9)
    model.compile(optimizer, loss, jit_compile="auto" if gpu else False)
    optimizer.build(model.trainable_variables)  # as `fit` does; else TensorFlow traces twice
    source, target, labels = (keras.ops.convert_to_tensor(ids) for ids in batch)
    return lambda: float(model.train_on_batch([source, target], labels))


def one(name, size, rows, length, seconds, gpu, keeps):
    """In its own process: builds a model and times its steps."""
    if keeps:
        keep_freed_memory()
    batch = batch_of(rows, length)
    begun = time.perf_counter()
    step = step_of(name, size, batch, gpu)
    step()
    first = time.perf_counter() - begun
    losses, used = [], time.process_time()
    step_seconds = harness.median_seconds(lambda: losses.append(step()), seconds)
    processor_seconds = (time.process_time() - used) / len(losses)
    found = {"rate": int((batch[2] != 0).sum()) / step_seconds, "seconds": step_seconds,
             "processor_seconds": processor_seconds, "first_seconds": first}  # fmt: skip
    return found | (on_gpu(name, size, rows, length, step_seconds) if gpu else {})


def on_gpu(name, size, rows, length, seconds):
    """The fraction of the chip's peak, and the peak of memory."""
    import torch

    chip = torch.cuda.get_device_name()
    peak = next((PEAKS[known] for known in PEAKS if known in chip), float("nan"))
    memory = torch.cuda.max_memory_allocated()
    if not name.startswith("torch"):
        import jax

        memory = jax.devices()[0].memory_stats()["peak_bytes_in_use"]
    flops = flops_of(size, rows, length) / seconds
    return {"chip": chip, "fraction_of_peak": flops / peak, "peak_gb": memory / 1e9}


def flops_of(size, rows, length):
    """FLOPs of a step: 2 per weight and token forward, 4 backward, and attention's products."""
    from keras_tfmr import TransformerConfig

    config = TransformerConfig.preset(size, source_vocab=VOCAB, target_vocab=VOCAB)
    d, dff = config.d_model, config.dff
    encoder = config.encoder_layers * (4 * d * d + 2 * d * dff + 2 * length * d)
    decoder = config.decoder_layers * (8 * d * d + 2 * d * dff + 3 * length * d)
    return 6 * rows * length * (encoder + decoder + d * VOCAB)


def measured(args, size, rows, length):
    """{side: figures} of one size and length."""
    names = ON_GPU if args.gpu else SIDES
    if not harness.installed("torch"):
        names = [name for name in names if not name.startswith("torch")]

    def run(name, keeps):
        backend = {"KERAS_BACKEND": "torch"} if name.startswith("torch") else {}
        task = {"name": name, "size": size, "rows": rows, "length": length,
                "seconds": args.seconds, "gpu": args.gpu, "keeps": keeps}  # fmt: skip
        return lambda: harness.alone(__file__, task, backend)

    settings = {name: {"default": False} if args.gpu else SIDES[name] for name in names}
    sides = {
        name: {label: run(name, keeps) for label, keeps in settings[name].items()} for name in names
    }
    return harness.compare(sides, args.turns, quick=args.quick)


def page(numbers, gpu):
    text = (
        "Rows are 40 % to 100 % full; vocabularies of 8,000, dropout 0.1, label smoothing 0.1, "
        "Adam, untied logits. Tokens are real target tokens. The first step includes building and "
        "tracing or compiling the model. `×` is against torch in the same precision.\n"
    )
    if gpu:
        text += (
            "\ntorch's attention drops weights within its fused kernel; JAX's cannot, so ours "
            "creates the scores unless attention's dropout rate is 0. Only with dropout there is "
            "`×` like for like, since torch's attention has it in every row.\n"
        )
    columns = ON_GPU_ALONE if gpu else ON_CPU_ALONE
    for key, found in numbers["cases"].items():
        rows = []
        for name, cell in found.items():
            peer = found.get("torch bfloat16 (autocast)" if "bfloat16" in name else "torch float32")
            more = [cell[column] for column in columns.values()]
            ratio = cell["rate"] / peer["rate"] if peer else ""
            rows.append([name, cell["rate"], ratio, cell["seconds"], cell["first_seconds"], *more])
        header = ["", "tokens/s", "× torch", "s a step", "first step, s"]
        header += columns
        text += f"\n## {key}\n\n{harness.table(header, rows)}"
    return text


def main():
    parser = harness.parser(__doc__)
    add = parser.add_argument
    add("--sizes", nargs="+", help="presets (default: tutorial small base; on a GPU: base)")
    add("--seconds", type=float, default=15, help="of a turn")
    add("--gpu", action="store_true", help="bfloat16 on a GPU")
    args = harness.parsed(parser)
    sizes = args.sizes or (["base"] if args.gpu else ["tutorial", "small", "base"])
    if args.quick:
        sizes, args.seconds = ["tiny"], 0.1
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    numbers = {**harness.about("keras", backend, "torch"), "cases": {}}
    for size in sizes:
        for length in ON_GPU_LENGTHS if args.gpu else [LENGTH]:
            rows = ON_GPU_TOKENS // length if args.gpu else BATCH
            key = f"{size}, {rows} × {length} tokens"
            numbers["cases"][key] = measured(args, size, rows, length)
    name = "train_step_gpu" if args.gpu else "train_step"
    title = "Training step on a GPU" if args.gpu else "Training step"
    harness.report(name, title, page(numbers, args.gpu), numbers, quick=args.quick)


if __name__ == "__main__":
    harness.serve(one) or main()
