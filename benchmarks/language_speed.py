"""Measures time per token of language models: ours, and GPT-2 of transformers and of KerasHub.

    python benchmarks/language_speed.py                # greedily and sampled, batches of 1 and 32
    python benchmarks/language_speed.py --quick        # one cell, few tokens, nothing written

The models have the same size. Every engine runs alone in a process of its own, once for each of its
settings (threads, compiled or not); each cell of the table shows the best of them. A prompt of 16
tokens is continued by 64; the time includes the prompt. Sampling draws from the 50 most probable
tokens. Needs
`pip install torch transformers keras-hub` beside this package, in this environment or in that of
--python. Writes results/language_speed.md and .json.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROMPT, VOCAB = 16, 8000
SIZES = {  # layers, width, heads, hidden
    "small": (4, 256, 4, 1024),
    "base": (6, 512, 8, 2048),
}
SETTINGS = {  # engine: its settings, (threads, way) each
    "keras_tfmr": [(1, "compiled"), (2, "compiled"), (2, "plain")],
    "transformers": [(1, "eager"), (2, "eager")],
    "KerasHub": [(1, "compiled"), (2, "compiled")],
}
WAITED = "; each engine at real-time priority, while other work waited"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--sizes", nargs="+", choices=SIZES, default=["small"])
    add("--batches", nargs="+", type=int, default=[1, 32])
    add("--tokens", type=int, default=64, help="tokens of a continuation")
    add("--turns", type=int, default=5, help="timed calls of a cell; their median counts")
    add(
        "--python", default=sys.executable, help="Python of an environment with the other libraries"
    )
    add("--exclusive", action="store_true", help="see exclusive.py")
    add("--quick", action="store_true", help="one cell of few tokens; writes nothing")
    add("--process", help="internal: time one engine with one setting")
    args = parser.parse_args()
    if args.process:
        return process(json.loads(args.process))
    from benchmarks import exclusive, measure

    keeper = exclusive.Exclusive() if args.exclusive else None
    if args.quick:
        args.batches, args.tokens, args.turns = [1], 8, 1
    results = {}
    for size in args.sizes:
        for engine, settings in SETTINGS.items():
            for threads, way in settings[:1] if args.quick else settings:
                task = {
                    "size": size, "engine": engine, "threads": threads, "way": way,
                    "batches": args.batches, "tokens": args.tokens, "turns": args.turns,
                }  # fmt: skip
                with keeper.timing([]) if keeper else contextlib.nullcontext():
                    found = run(task, args.python)
                for cell, seconds in found.items():
                    rows = results.setdefault(f"{size}, {cell}", {}).setdefault(engine, [])
                    rows.append({"ms": 1000 * seconds / args.tokens, "setting": f"{threads} {way}"})
    if keeper:
        keeper.close()
    print(page(results, args))
    if not args.quick:
        measure.write("language_speed", page(results, args), results)
    return None


def run(task, python):
    """Runs one engine with one setting in its own process; returns {cell: seconds of a call}."""
    python = sys.executable if task["engine"] == "keras_tfmr" else python
    environment = {
        **os.environ, "OMP_NUM_THREADS": str(task["threads"]), "TF_CPP_MIN_LOG_LEVEL": "2",
        "KERAS_BACKEND": "tensorflow", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    done = subprocess.run(
        [python, __file__, "--process", json.dumps(task)],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{task} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def process(task):
    """Times one engine, and prints {cell: seconds}."""
    import numpy as np

    make = {"keras_tfmr": ours, "transformers": transformers, "KerasHub": keras_hub}[task["engine"]]
    found = {}
    for sampled in (False, True):
        call = make(task, sampled)
        for batch in task["batches"]:
            ids = np.random.default_rng(0).integers(4, VOCAB, (batch, PROMPT)).astype("int32")
            assert call(ids) == task["tokens"], "another number of tokens than asked for"
            times = []
            for _ in range(task["turns"]):
                begin = time.perf_counter()
                call(ids)
                times.append(time.perf_counter() - begin)
            name = f"{'sampled' if sampled else 'greedy'}, batch {batch}"
            found[name] = statistics.median(times)
    print("\n" + json.dumps(found), flush=True)


def ours(task, sampled):
    """A `LanguageModel` in the form of GPT-2, decoded as its export decodes."""
    import tensorflow as tf

    from keras_tfmr import LanguageModel, TransformerConfig
    from keras_tfmr.decoding import greedy, sample

    tf.config.threading.set_intra_op_parallelism_threads(task["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(1)
    layers, width, heads, hidden = SIZES[task["size"]]
    config = TransformerConfig(
        target_vocab=VOCAB, joint_vocab=False, decoder_layers=layers, d_model=width,
        num_heads=heads, dff=hidden, norm_first=True, positions="learned", max_length=512,
        activation="gelu_tanh", embedding_scale=False,
    )  # fmt: skip
    model, compiled = LanguageModel(config), task["way"] == "compiled"

    @tf.function(jit_compile=compiled, autograph=False)
    def decode(ids):
        prompt = tf.ensure_shape(ids, [None, PROMPT])
        step, state, start_ids, _ = model.start_after(
            prompt, max_length=task["tokens"], compiled=compiled
        )
        options = {
            "start_ids": start_ids, "end_id": 3, "max_length": task["tokens"],
            "min_length": task["tokens"],
        }  # fmt: skip
        if sampled:
            return sample(step, state, seed=1, top_k=50, **options).ids
        return greedy(step, state, **options).ids

    def call(ids):
        return decode(tf.constant(ids)).numpy().shape[2]

    return call


def transformers(task, sampled):
    """GPT-2 of transformers, by its `generate`."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(task["threads"])
    layers, width, heads, hidden = SIZES[task["size"]]
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCAB, n_positions=512, n_embd=width, n_layer=layers, n_head=heads,
        n_inner=hidden, bos_token_id=2, eos_token_id=3, pad_token_id=0,
    )).eval()  # fmt: skip
    how = {"do_sample": True, "top_k": 50} if sampled else {"do_sample": False}

    def call(ids):
        ids = torch.tensor(ids, dtype=torch.long)
        with torch.inference_mode():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=task["tokens"],
                min_new_tokens=task["tokens"], **how,
            )  # fmt: skip
        return out.shape[1] - PROMPT

    return call


def keras_hub(task, sampled):
    """GPT-2 of KerasHub, by its `generate`, which XLA compiles."""
    import keras_hub as hub
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(task["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(1)
    layers, width, heads, hidden = SIZES[task["size"]]
    backbone = hub.models.GPT2Backbone(
        vocabulary_size=VOCAB, num_layers=layers, num_heads=heads, hidden_dim=width,
        intermediate_dim=hidden, max_sequence_length=512,
    )  # fmt: skip
    model = hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)
    sampler = hub.samplers.TopKSampler(k=50, seed=1) if sampled else "greedy"
    model.compile(sampler=sampler, jit_compile=task["way"] == "compiled")

    def call(ids):
        length = PROMPT + task["tokens"]
        padded = np.zeros((len(ids), length), "int32")
        padded[:, :PROMPT] = ids
        mask = np.zeros_like(padded)
        mask[:, :PROMPT] = 1
        out = model.generate({"token_ids": padded, "padding_mask": mask}, stop_token_ids=None)
        return out["token_ids"].shape[1] - PROMPT

    return call


def page(results, args):
    """The results as Markdown."""
    from benchmarks import measure

    engines = list(SETTINGS)
    lines = [
        "# Time per token of a language model",
        "",
        f"Milliseconds a new token, {args.tokens} of them behind a prompt of {PROMPT}; the best "
        "setting of each engine, in brackets (threads, way). The ratio is that to the better of "
        "the others.",
        "",
        f"| model, way, batch | {' | '.join(engines)} | ratio |",
        "|---" * (len(engines) + 2) + "|",
    ]
    for cell, found in results.items():
        best = {engine: min(rows, key=lambda row: row["ms"]) for engine, rows in found.items()}
        ratio = (
            min(row["ms"] for e, row in best.items() if e != engines[0]) / best[engines[0]]["ms"]
        )
        cells = [f"{best[e]['ms']:.3f} ({best[e]['setting']})" for e in engines]
        lines.append(f"| {cell} | {' | '.join(cells)} | {ratio:.2f} |")
    tried = "; ".join(
        f"{engine}: {', '.join(f'{threads} {way}' for threads, way in settings)}"
        for engine, settings in SETTINGS.items()
    )
    lines += ["", f"Settings that were tried: {tried}."]
    lines += ["", "Layers, width, heads and hidden units: " + "; ".join(
        f"{name}: {', '.join(map(str, size))}" for name, size in SIZES.items() if name in args.sizes
    ) + f"; {VOCAB:,} tokens.", "", f"{measure.machine()}{WAITED * args.exclusive}."]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
