"""The engines that benchmarks/decode.py compares, each to be run in a process of its own.

An engine is a function `make(setting, folder)` to `{column: call}`, and `call(source)` decodes
int32 `[batch, source]` into int32 `[batch, 32]`. Libraries are imported inside, so that no process
holds more than one of them and their threads.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

VOCAB, START, END, SOURCE, TOKENS, THREADS = 8000, 2, 3, 16, 32, 2


class Setting(NamedTuple):
    size: str
    beams: int
    max_length: int = TOKENS  # room for so many tokens
    tokens: int = TOKENS  # tokens produced

    @property
    def folder(self):
        return f"{self.size}-{self.beams}-{self.max_length}-{self.tokens}"


def source(batch, length=SOURCE, seed=0):
    return np.random.default_rng(seed).integers(4, VOCAB, size=(batch, length)).astype("int32")


def build(size, policy="float32"):
    """Our model with the same random weights in every process and precision."""
    import keras

    from keras_tfmr import TransformerConfig, TranslationModel

    keras.utils.set_random_seed(0)
    config = TransformerConfig.preset(size, source_vocab=VOCAB, target_vocab=VOCAB)
    model = TranslationModel(config)
    if policy == "float32":
        return model
    keras.config.set_dtype_policy(policy)
    rounded = TranslationModel(config)
    keras.config.set_dtype_policy("float32")
    rounded.set_weights(model.get_weights())
    return rounded


def threads():
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    return tf


def search(model, setting, compiled):
    """Ids to ids as one function of TensorFlow."""
    import tensorflow as tf

    from keras_tfmr.decoding import DecodingConfig

    alpha = 0.6 if setting.beams > 1 else 0.0
    config = DecodingConfig(
        beams=setting.beams, max_length=setting.max_length, min_length=setting.tokens,
        length_penalty=alpha,
    )  # fmt: skip

    def run(source_ids):
        step, state = model.start(
            source_ids, setting.beams, max_length=setting.max_length, compiled=compiled
        )
        start_ids = tf.fill(tf.shape(source_ids)[:1], START)
        limits = tf.fill(tf.shape(source_ids)[:1], setting.tokens)
        result = config.decode(step, state, start_ids=start_ids, end_id=END, limits=limits)
        return result.ids[:, 0]

    spec = [tf.TensorSpec([None, None], tf.int32, name="source_ids")]
    return tf.function(run, input_signature=spec, jit_compile=compiled, autograph=False)


def in_process(setting, folder):
    tf = threads()
    calls = {}
    for column, policy, compiled in COLUMNS:
        function = search(build(setting.size, policy), setting, compiled)
        calls[column] = lambda ids, function=function: function(tf.constant(ids)).numpy()
    return calls


COLUMNS = [
    ("XLA", "float32", True),
    ("XLA bfloat16", "bfloat16", True),
    ("graph", "float32", False),
    ("graph bfloat16", "bfloat16", False),
]


def saved(setting, folder):
    """The same functions, exported here, loaded by the C++ session loader without our code."""
    tf = threads()
    calls = {}
    for column, policy, compiled in COLUMNS:
        if policy != "float32":
            continue
        run = search(build(setting.size, policy), setting, compiled)
        spec = tf.TensorSpec([None, None], tf.int32, name="source_ids")
        outer = tf.function(lambda source_ids, run=run: {"ids": run(source_ids)})
        outer = outer.get_concrete_function(spec)
        module = tf.Module()
        module.weights = list(outer.variables)  # not the Keras objects, whose handles are others
        path = str(Path(folder) / setting.folder / column)
        tf.saved_model.save(module, path, signatures=outer)
        calls[f"SavedModel, {column}"] = session(path)
    return calls


def session(path):
    import tensorflow as tf

    options = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=THREADS)
    loaded = tf.compat.v1.Session(graph=tf.Graph(), config=options)
    with loaded.graph.as_default():
        meta = tf.compat.v1.saved_model.load(loaded, ["serve"], path)
    signature = meta.signature_def["serving_default"]
    feed, fetch = signature.inputs["source_ids"].name, signature.outputs["ids"].name
    return loaded.make_callable(fetch, [feed])


def ctranslate2(setting, folder):
    """Our weights in CTranslate2, in float32 and int8."""
    import decode_convert

    path = str(Path(folder) / f"ctranslate2-{setting.size}")
    model = build(setting.size)
    tokens = decode_convert.convert(model, path)
    ids_of = {token: index for index, token in enumerate(tokens)}
    import ctranslate2 as library

    calls = {}
    for kind in ("float32", "int8"):
        translator = library.Translator(
            path, device="cpu", compute_type=kind, intra_threads=THREADS, inter_threads=1
        )

        def call(ids, translator=translator):
            results = translator.translate_batch(
                [[tokens[token] for token in row] for row in ids],
                beam_size=setting.beams,
                max_decoding_length=setting.tokens,
                min_decoding_length=setting.tokens,
                length_penalty=0.6 if setting.beams > 1 else 0.0,
            )
            return np.array([[ids_of[token] for token in r.hypotheses[0]] for r in results])

        calls[f"CTranslate2 {kind}"] = call
    return calls


def marian(setting, folder):
    """MarianMT in PyTorch, of the same size, with random weights of its own."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    ours = dimensions(setting.size)
    config = MarianConfig(
        vocab_size=VOCAB, d_model=ours["d_model"], max_position_embeddings=512,
        encoder_layers=ours["encoder_layers"], decoder_layers=ours["decoder_layers"],
        encoder_attention_heads=ours["num_heads"], decoder_attention_heads=ours["num_heads"],
        encoder_ffn_dim=ours["dff"], decoder_ffn_dim=ours["dff"], activation_function="relu",
        scale_embedding=True, pad_token_id=0, eos_token_id=END, decoder_start_token_id=START,
        forced_eos_token_id=None,
    )  # fmt: skip
    model = MarianMTModel(config).eval()

    def call(ids):
        with torch.inference_mode():
            out = model.generate(
                input_ids=torch.tensor(ids, dtype=torch.long), num_beams=setting.beams,
                attention_mask=torch.ones(ids.shape, dtype=torch.long), do_sample=False,
                min_new_tokens=setting.tokens, max_new_tokens=setting.tokens,
            )  # fmt: skip
        return out[:, 1:].numpy()

    return {"MarianMT": call}


def kerashub(setting, folder):
    """KerasHub's BART of the same size, compiled by XLA as it is by default."""
    tf = threads()
    import keras_hub

    ours = dimensions(setting.size)
    backbone = keras_hub.models.BartBackbone(
        vocabulary_size=VOCAB, num_layers=ours["encoder_layers"], num_heads=ours["num_heads"],
        hidden_dim=ours["d_model"], intermediate_dim=ours["dff"], dropout=0.0,
        max_sequence_length=setting.tokens + 1,
    )  # fmt: skip
    model = keras_hub.models.BartSeq2SeqLM(backbone, preprocessor=None)
    sampler = "greedy"
    if setting.beams > 1:
        sampler = keras_hub.samplers.BeamSampler(num_beams=setting.beams)
    model.compile(sampler=sampler, jit_compile=True)
    generate = model.make_generate_function()

    def call(ids):
        batch, room = len(ids), setting.tokens + 1
        target = np.zeros((batch, room), "int32")
        target[:, 0] = START
        inputs = {
            "encoder_token_ids": ids, "encoder_padding_mask": np.ones(ids.shape, bool),
            "decoder_token_ids": target, "decoder_padding_mask": np.arange(room) < 1,
        }  # fmt: skip
        inputs["decoder_padding_mask"] = np.tile(inputs["decoder_padding_mask"], (batch, 1))
        inputs = {name: tf.constant(value) for name, value in inputs.items()}
        return np.array(generate(inputs, stop_token_ids=None)["decoder_token_ids"])[:, 1:]

    return {"KerasHub BART": call}


def dimensions(size):
    from keras_tfmr import TransformerConfig

    config = TransformerConfig.preset(size, source_vocab=VOCAB, target_vocab=VOCAB)
    return json.loads(config.to_json())


ENGINES = {
    "in process": in_process,
    "saved": saved,
    "ctranslate2": ctranslate2,
    "marian": marian,
    "kerashub": kerashub,
}
