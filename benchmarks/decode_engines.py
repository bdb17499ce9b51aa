"""The engines that benchmarks/decode.py compares, and the settings that it tries for each.

Each runs in a process of its own (decode_process.py), where `load(setting, size, folder)` returns a
function `call(source, beams)` that decodes int32 `[batch, source]` into int32 `[batch, tokens]`.
Libraries are imported inside the functions, so that a process holds only one of them and its
threads. decode_prepare.py writes the files in `folder` that they load.
"""

import itertools
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

VOCAB, START, END, SOURCE, TOKENS = 8000, 2, 3, 16, 32
PENALTY = 0.6  # of the length, with beams
PIECES = ["<blank>", "<unk>", "<s>", "</s>", *(f"t{i}" for i in range(4, VOCAB))]


def source(batch, length=SOURCE, seed=0):
    """The same random sentences for every engine: int32 [batch, length]."""
    return np.random.default_rng(seed).integers(4, VOCAB, size=(batch, length)).astype("int32")


class Ours(NamedTuple):
    """An exported SavedModel in a session, as a server runs it, without our code."""

    graph: str  # "XLA" or "plain"
    dtype: str  # "float32" or "bfloat16"
    threads: int  # within an operation
    operations: int  # side by side
    tokens: int = TOKENS
    copies: int = 1  # processes beside each other, for throughput

    engine = "ours"

    @property
    def column(self):
        return f"ours, {self.graph} {self.dtype}"

    def __str__(self):
        return f"{self.threads} within × {self.operations} between operations"

    def environment(self):
        return {}

    def load(self, size, folder):
        import tensorflow as tf

        options = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=self.threads, inter_op_parallelism_threads=self.operations
        )

        def session(beams):
            path = saved_model(folder, size, beams, self.tokens, self.graph, self.dtype)
            loaded = tf.compat.v1.Session(graph=tf.Graph(), config=options)
            with loaded.graph.as_default():
                meta = tf.compat.v1.saved_model.load(loaded, ["serve"], str(path))
            signature = meta.signature_def["serving_default"]
            feed, fetch = signature.inputs["source_ids"].name, signature.outputs["ids"].name
            return loaded.make_callable(fetch, [feed])

        sessions = Lazily(session)
        return lambda ids, beams: sessions[beams](ids)


class CTranslate2(NamedTuple):
    """CTranslate2 with our weights. Two translators share a request of several sentences."""

    dtype: str  # "float32" or "int8"
    threads: int  # of a translator
    translators: int
    blocktime: int | None = None  # KMP_BLOCKTIME: milliseconds that an idle thread spins
    copies: int = 1

    engine = "ctranslate2"

    @property
    def column(self):
        return f"CTranslate2 {self.dtype}"

    def __str__(self):
        text = f"{self.translators} × {self.threads} threads"
        return text if self.blocktime is None else f"{text}, KMP_BLOCKTIME={self.blocktime}"

    def environment(self):
        return {} if self.blocktime is None else {"KMP_BLOCKTIME": str(self.blocktime)}

    def load(self, size, folder):
        import ctranslate2

        translator = ctranslate2.Translator(
            str(ctranslate2_model(folder, size)), device="cpu", compute_type=self.dtype,
            intra_threads=self.threads, inter_threads=self.translators,
        )  # fmt: skip
        ids_of = {piece: index for index, piece in enumerate(PIECES)}

        def call(ids, beams):
            results = translator.translate_batch(
                [[PIECES[token] for token in row] for row in ids],
                beam_size=beams,
                max_decoding_length=TOKENS,
                min_decoding_length=TOKENS,
                length_penalty=PENALTY if beams > 1 else 0.0,
                max_batch_size=-(-len(ids) // self.translators),
            )
            return np.array([[ids_of[piece] for piece in r.hypotheses[0]] for r in results])

        return call


class Marian(NamedTuple):
    """MarianMT in PyTorch, of the same size, with random weights of its own."""

    threads: int
    waiting: str = "default"  # or "passive": idle threads sleep
    copies: int = 1

    engine = "marian"
    column = "MarianMT"

    def __str__(self):
        text = f"{self.threads} threads" + f" × {self.copies} processes" * (self.copies > 1)
        return text + ", passive waiting" * (self.waiting == "passive")

    def environment(self):
        passive = {"OMP_WAIT_POLICY": "PASSIVE"} if self.waiting == "passive" else {}
        return {"OMP_NUM_THREADS": str(self.threads), **passive}

    def load(self, size, folder):
        import torch
        from transformers import MarianConfig, MarianMTModel

        torch.set_num_threads(self.threads)
        torch.manual_seed(0)
        ours = dimensions(folder, size)
        config = MarianConfig(
            vocab_size=VOCAB, d_model=ours["d_model"], max_position_embeddings=512,
            encoder_layers=ours["encoder_layers"], decoder_layers=ours["decoder_layers"],
            encoder_attention_heads=ours["num_heads"], decoder_attention_heads=ours["num_heads"],
            encoder_ffn_dim=ours["dff"], decoder_ffn_dim=ours["dff"], activation_function="relu",
            scale_embedding=True, pad_token_id=0, eos_token_id=END, decoder_start_token_id=START,
            forced_eos_token_id=None,
        )  # fmt: skip
        model = MarianMTModel(config).eval()

        def call(ids, beams):
            with torch.inference_mode():
                out = model.generate(
                    input_ids=torch.tensor(ids, dtype=torch.long), num_beams=beams,
                    attention_mask=torch.ones(ids.shape, dtype=torch.long), do_sample=False,
                    min_new_tokens=TOKENS, max_new_tokens=TOKENS,
                )  # fmt: skip
            return out[:, 1:].numpy()

        return call


class KerasHub(NamedTuple):
    """KerasHub's BART of the same size, compiled by XLA, which is its default."""

    threads: int
    copies: int = 1

    engine = "kerashub"
    column = "KerasHub BART"

    def __str__(self):
        return f"{self.threads} threads" + f" × {self.copies} processes" * (self.copies > 1)

    def environment(self):
        return {"KERAS_BACKEND": "tensorflow"}

    def load(self, size, folder):
        import keras_hub
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(self.threads)
        tf.config.threading.set_inter_op_parallelism_threads(2)
        ours = dimensions(folder, size)
        backbone = keras_hub.models.BartBackbone(
            vocabulary_size=VOCAB, num_layers=ours["encoder_layers"], num_heads=ours["num_heads"],
            hidden_dim=ours["d_model"], intermediate_dim=ours["dff"], dropout=0.0,
            max_sequence_length=TOKENS + 1,
        )  # fmt: skip

        def function(beams):
            model = keras_hub.models.BartSeq2SeqLM(backbone, preprocessor=None)
            beam = keras_hub.samplers.BeamSampler(num_beams=beams)
            model.compile(sampler=beam if beams > 1 else "greedy", jit_compile=True)
            return model.make_generate_function()

        functions = Lazily(function)

        def call(ids, beams):
            target = np.zeros((len(ids), TOKENS + 1), "int32")
            target[:, 0] = START
            inputs = {
                "encoder_token_ids": ids,
                "encoder_padding_mask": np.ones(ids.shape, bool),
                "decoder_token_ids": target,
                "decoder_padding_mask": target == START,
            }
            inputs = {name: tf.constant(value) for name, value in inputs.items()}
            found = functions[beams](inputs, stop_token_ids=None)
            return np.array(found["decoder_token_ids"])[:, 1:]

        return call


class Lazily(dict):
    """Values that are made when they are first used."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def __missing__(self, key):
        self[key] = self.make(key)
        return self[key]


def saved_model(folder, size, beams, tokens, graph, dtype):
    return Path(folder) / f"{size}-{beams}-{tokens}-{graph}-{dtype}"


def ctranslate2_model(folder, size):
    return Path(folder) / f"ctranslate2-{size}"


def dimensions(folder, size):
    return json.loads((Path(folder) / f"{size}.json").read_text())


def _ours():
    """A compiled search is one operation: two run side by side for two callers, and none else."""
    pairs = itertools.product(("XLA", "plain"), ("float32", "bfloat16"), (1, 2), (1, 2))
    return [
        Ours(graph, dtype, threads, operations)
        for graph, dtype, threads, operations in pairs
        if graph == "plain" or operations == 2
    ]


def _ctranslate2():
    return [
        CTranslate2(dtype, threads, translators, blocktime)
        for dtype, threads, translators, blocktime in itertools.product(
            ("float32", "int8"), (1, 2), (1, 2), (None, 0)
        )
        if threads > 1 or blocktime is None  # a lone thread waits for nobody
    ]


ENGINES = {
    "ours": _ours(),
    "ctranslate2": _ctranslate2(),
    "marian": [Marian(1), Marian(2), Marian(2, "passive"), Marian(1, copies=2)],
    "kerashub": [KerasHub(1), KerasHub(2), KerasHub(1, copies=2)],
}
