"""Compares `generate` of a language model with KerasHub's and transformers'.

    python benchmarks/generate.py --backends tensorflow jax torch

Needs keras-hub and transformers beside keras_tfmr, and the backends. All three have the shape of
GPT-2 (4 layers, 256 wide, 8 heads, 1,024 hidden, 8,000 words, learned positions) and random
weights; each goes on with prompts of 8 tokens for 64 more. Sampling is from the 50 most probable
words. KerasHub is tried with XLA and without, and transformers, which runs on PyTorch alone, as it
is. Backends can be measured one by one. Writes results/generate.md and .json.
"""

import functools
import itertools
import time

import harness
import numpy as np

LAYERS, WIDTH, HEADS, HIDDEN, VOCAB = 4, 256, 8, 1024, 8000
PROMPT, TOKENS, BEAMS, TOP_K = 8, 64, 4, 50
WAYS = ("greedy", "4 beams", "sampling")
BACKENDS = ("tensorflow", "jax", "torch")


def prompts_of(rows):
    return np.random.default_rng(0).integers(3, VOCAB, (rows, PROMPT)).astype("int32")


def ours(rows, way, setting):
    """A function without arguments that returns the ids."""
    from keras import ops

    from keras_tfmr import TransformerConfig, TransformerLanguageModel
    from keras_tfmr.decoding import Sampling

    config = TransformerConfig(
        source_vocab=VOCAB, target_vocab=VOCAB, decoder_layers=LAYERS, d_model=WIDTH,
        num_heads=HEADS, dff=HIDDEN, positions="learned", max_length=PROMPT + TOKENS,
        norm_first=True, activation="gelu_tanh",
    )  # fmt: skip
    model, prompts = TransformerLanguageModel(config), prompts_of(rows)
    options = {
        "greedy": {},
        "4 beams": {"num_beams": BEAMS},
        "sampling": {"sampling": Sampling(seed=0, top_k=TOP_K)},
    }[way]

    def generate():
        result = model.generate(prompts, eos_id=1, max_length=TOKENS, **options)
        return ops.convert_to_numpy(result.ids)[:, 0]

    return generate


def of_keras_hub(rows, way, setting):
    import keras_hub

    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=VOCAB, num_layers=LAYERS, num_heads=HEADS, hidden_dim=WIDTH,
        intermediate_dim=HIDDEN, max_sequence_length=PROMPT + TOKENS,
    )  # fmt: skip
    model = keras_hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)
    sampler = {
        "greedy": "greedy",
        "4 beams": keras_hub.samplers.BeamSampler(num_beams=BEAMS),
        "sampling": keras_hub.samplers.TopKSampler(k=TOP_K),
    }[way]
    model.compile(sampler=sampler, jit_compile=setting == "compiled")
    room = [[0, 0], [0, TOKENS]]
    prompts = prompts_of(rows)
    inputs = {
        "token_ids": np.pad(prompts, room),
        "padding_mask": np.pad(np.ones_like(prompts, "bool"), room),
    }
    return lambda: np.asarray(model.generate(inputs, stop_token_ids=None)["token_ids"])


def of_transformers(rows, way, setting):
    import torch
    import transformers

    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=PROMPT + TOKENS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
        n_inner=HIDDEN, bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    prompts = torch.from_numpy(prompts_of(rows)).long()
    options = {
        "greedy": {"do_sample": False},
        "4 beams": {"do_sample": False, "num_beams": BEAMS},
        "sampling": {"do_sample": True, "top_k": TOP_K},
    }[way]
    options |= {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "pad_token_id": 0}
    mask = torch.ones_like(prompts)
    return lambda: model.generate(prompts, attention_mask=mask, **options).numpy()


SIDES = {"keras_tfmr": ours, "KerasHub": of_keras_hub, "transformers": of_transformers}


def one(side, setting, rows, way, seconds):
    """In its own process: tokens a second, and the seconds of the first call."""
    generate = SIDES[side](rows, way, setting)
    begun = time.perf_counter()
    ids = generate()
    first = time.perf_counter() - begun
    decoded = np.count_nonzero(ids[:, PROMPT:])
    return {"rate": decoded / harness.median_seconds(generate, seconds), "first": first}


def measure(args, backend, rows, way):
    """The answers of every side to one case, by its name."""

    def tasks(side, settings):
        return {
            setting: functools.partial(
                harness.alone, __file__,
                {"side": side, "setting": setting, "rows": rows, "way": way,
                 "seconds": args.seconds},
                {"KERAS_BACKEND": backend},
            )
            for setting in settings
        }  # fmt: skip

    sides = {"keras_tfmr": tasks("keras_tfmr", ["default"])}
    if harness.installed("keras_hub"):
        settings = ["compiled"] if backend == "jax" else ["compiled", "not compiled"]
        settings = ["not compiled"] if backend == "torch" else settings
        sides["KerasHub"] = tasks("KerasHub", settings)
    if backend == "torch" and harness.installed("transformers"):
        sides["transformers"] = tasks("transformers", ["default"])
    return harness.compare(sides, args.turns, quick=args.quick)


def page(numbers):
    """The table: tokens a second of each side, our speed over it, and first calls."""
    text = (
        f"Tokens a second that {TOKENS} tokens behind prompts of {PROMPT} take, after the first "
        "call; `×` is keras_tfmr's speed over it. In brackets, the seconds of the first call. "
        "KerasHub has its faster setting, with XLA or without.\n\n"
    )
    header = ["backend", "", "prompts", "keras_tfmr", "KerasHub", "×", "transformers", "×"]
    lines = []
    for case in numbers["cases"]:
        ours, cells = case["sides"]["keras_tfmr"], []
        for side in ("KerasHub", "transformers"):
            theirs = case["sides"].get(side)
            cells += [cell(theirs), ours["rate"] / theirs["rate"]] if theirs else ["", ""]
        lines.append([case["backend"], case["way"], case["prompts"], cell(ours), *cells])
    return text + harness.table(header, lines)


def cell(answer):
    return f"{answer['rate']:,.0f} ({answer['first']:.1f})"


def main():
    parser = harness.parser(__doc__)
    add = parser.add_argument
    add("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS), help="backends")
    add("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="ways to search")
    add("--prompts", nargs="+", type=int, default=[1, 32], help="numbers of prompts")
    add("--seconds", type=float, default=3, help="of each case and turn")
    args = harness.parsed(parser)
    if args.quick:
        args.backends, args.ways, args.prompts, args.seconds = ["tensorflow"], WAYS[:1], [1], 0.1
    numbers = harness.about("keras", *BACKENDS, "keras-hub", "transformers")
    backends = [backend for backend in args.backends if harness.installed(backend)]
    measured = itertools.product(backends, args.ways, args.prompts)
    found = {case: measure(args, case[0], case[2], case[1]) for case in measured}
    earlier = [] if args.quick else harness.kept("generate").get("cases", [])
    kept = {(case["backend"], case["way"], case["prompts"]): case["sides"] for case in earlier}
    order = list(itertools.product(BACKENDS, WAYS))
    numbers["cases"] = [
        {"backend": backend, "way": way, "prompts": rows, "sides": sides}
        for (backend, way, rows), sides in sorted(
            {**kept, **found}.items(), key=lambda case: (order.index(case[0][:2]), case[0][2])
        )
    ]
    harness.report("generate", "Generating", page(numbers), numbers, quick=args.quick)


if __name__ == "__main__":
    harness.serve(one) or main()
