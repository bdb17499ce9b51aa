"""The translator of a command line, as functions that several threads call."""

import contextlib
import functools
import hashlib

import keras
import numpy as np
import tensorflow as tf

from keras_tfmr import Translator
from keras_tfmr.decoding import Sampling
from keras_tfmr.export.calibration import texts_for
from keras_tfmr.signatures.answers import Translation
from training.command import scripts
from training.command.disk import RunError, refusing


class Callers:
    """What translates the texts of a file.

    Args:
        options: The command line.

    Attributes:
        callers: For each thread, a function `(texts, seed) -> list of lists of hypotheses`.
        token_counts: A function from texts to the number of tokens of each.
        record: What the translations depend on: see `fingerprint`.

    Raises:
        RunError: If the model, the terms or the language cannot be used.
    """

    def __init__(self, options):
        with contextlib.suppress(RuntimeError):  # TensorFlow has already started its threads
            # One core per caller: several batches at once gain more than threads within an
            # operation.
            tf.config.threading.set_intra_op_parallelism_threads(1)
        with refusing(ValueError):
            terms = options.terms and scripts.terms(options.terms)
        translator, record = load(options)
        self.record = {**record, "terms": terms}
        self.token_counts = translator.token_counts
        if options.sample:
            self.callers = [sampling(translator, options) for _ in range(options.threads)]
        else:
            self.callers = [caller_of(translator, options.documents, terms)] * options.threads


def load(options):
    """The `Translator` of the preset, and what its translations depend on."""
    n, values = options.nbest or 1, vars(options)
    search = ("num_beams", "length_penalty", "max_length")
    names = (*search, "max_source_length", "protect", "language")
    chosen = {name: values[name] for name in names if values[name] is not None}
    if "protect" in chosen:
        chosen["protect"] = scripts.protected(options.protect)
    with refusing(ValueError):
        translator = Translator.from_preset(options.preset, options.weights or True, **chosen)
    source = translator.source_tokenizer
    if source.target_languages and source.target_language is None:
        known = ", ".join(source.target_languages)
        raise RunError(
            f"{options.preset} has several target languages: give --language, of {known}"
        )
    beams = 1 if options.sample else max(translator.config.num_beams, n)
    translator = translator.replace(
        config=translator.config.replace(num_beams=beams, num_return_sequences=n)
    )
    record, texts = fingerprint(translator), texts_for(translator, None)[:64]
    with refusing(RuntimeError):  # this TensorFlow has no int8
        return translator.for_decoding(options.precision, texts), record


def fingerprint(translator):
    """What tells a translator from another one, by content: {part: its settings or checksum}."""
    digests = {"weights": hashlib.sha256()}
    for weight in translator.model.weights:
        digests["weights"].update(np.ascontiguousarray(keras.ops.convert_to_numpy(weight)))
    for side, tokenizer in translator.tokenizers.items():
        digests[f"{side} tokenizer"] = hashlib.sha256(tokenizer.model_bytes)
    words = "\n".join(sorted(translator.splitter.words))
    digests["abbreviations"] = hashlib.sha256(words.encode())
    return {
        **{name: digest.hexdigest()[:12] for name, digest in digests.items()},
        "model": translator.model.config.to_dict(),
        "target language": translator.source_tokenizer.target_language,
        **translator.to_metadata(),
    }


def caller_of(translator, documents, terms):
    """A function that translates a batch of texts or documents."""
    if documents:
        return lambda texts, seed: [
            [Translation(document.text, 0.0, document.truncated)]
            for document in translator.translate_document(texts)
        ]
    if terms is not None:
        call = functools.partial(translator.translate_with_terms, terms=terms)
        with refusing(ValueError):  # the model has no slots
            call([])
        return lambda texts, seed: [[best] for best in call(texts, batch_size=len(texts))]
    return lambda texts, seed: translator.translate_nbest(texts, len(texts))


def sampling(translator, options):
    """A function that samples translations of a batch; the same seed gives the same ones."""
    noise = keras.random.SeedGenerator(0)
    drawing = translator.replace()
    drawing.choose = Sampling(seed=noise, temperature=options.temperature, top_k=options.top_k)

    def call(texts, seed):
        seed = (options.seed, *seed)
        state = int.from_bytes(str(seed).encode(), "little") % (2**32 - 5)  # a prime
        noise.state.assign([state, 0])
        return drawing.translate_nbest(texts, len(texts))

    return call
