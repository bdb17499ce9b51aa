"""What the models answer under one backend: `python tests/backend_answers.py FILE.npz`.

Weights and inputs are the same numbers everywhere, so that the answers of two backends compare.
"""

import sys

import keras
import numpy as np
from keras import ops

import keras_tfmr
from keras_tfmr.decoding import beam_search, greedy, sample
from keras_tfmr.recurrent import (
    ConvolutionalConfig,
    ConvolutionalModel,
    LSTMNConfig,
    LSTMNLanguageModel,
    MemoryNetwork,
    MemoryNetworkConfig,
    RNNSearchConfig,
    RNNSearchModel,
    Seq2SeqConfig,
    Seq2SeqModel,
)

VOCAB, START, END, LENGTH = 50, 2, 3, 7
SIZES = {"source_vocab": VOCAB, "target_vocab": VOCAB}
SOURCE = np.array([[5, 9, 7, 3], [8, 3, 0, 0], [6, 6, 3, 0]], "int32")
TARGET = np.array([[2, 9, 4], [2, 5, 0], [2, 8, 7]], "int32")


def transformer(**fields):
    return keras_tfmr.TransformerConfig.preset("tiny", **SIZES, **fields)


def with_weights(model):
    generator = np.random.default_rng(3)
    model.set_weights([0.3 * generator.normal(size=w.shape) for w in model.get_weights()])
    return model


def searched(model, beams):
    step, state = model.start(ops.convert_to_tensor(SOURCE), num_beams=beams, max_length=LENGTH)
    found = beam_search(
        step, state, bos_ids=np.full(3, START, "int32"), eos_id=END, num_beams=beams,
        num_return_sequences=beams, max_length=LENGTH, banned_ids=(0, 1, START),
    )  # fmt: skip
    return found.ids, found.scores


def translators():
    yield keras_tfmr.TranslationModel(transformer())
    yield keras_tfmr.TranslationModel(transformer(joint_vocab=False, positions="learned"))
    yield RNNSearchModel(RNNSearchConfig.preset("tiny", **SIZES))
    yield Seq2SeqModel(Seq2SeqConfig.preset("tiny", **SIZES))
    yield ConvolutionalModel(ConvolutionalConfig.preset("tiny", **SIZES))


def language_models():
    yield keras_tfmr.LanguageModel(transformer())
    yield LSTMNLanguageModel(LSTMNConfig(vocab=VOCAB, embedding_dim=8, units=8))


def after_a_step(model):
    """Its weights after one step of gradient descent; dropout must be 0."""
    loss = keras_tfmr.LabelSmoothedCrossEntropy(0.1)
    model.compile(
        keras.optimizers.SGD(0.5),
        loss,
        metrics=[keras_tfmr.TokenAccuracy(), keras_tfmr.Perplexity()],
    )
    model.train_on_batch([SOURCE, TARGET], np.roll(TARGET, -1, axis=1))
    return model.get_weights()


def answers():
    """Nested lists of arrays, by what gave them."""
    found = {}
    for number, model in enumerate(map(with_weights, translators())):
        found[f"translator {number}"] = [
            model([SOURCE, TARGET]), *searched(model, 3)
        ]  # fmt: skip
    for number, model in enumerate(map(with_weights, language_models())):
        ids = np.full(3, START, "int32")
        options = {"bos_ids": ids, "eos_id": END, "max_length": LENGTH, "min_length": 3}
        decoded = greedy(*model.start(3, max_length=LENGTH), **options)
        found[f"language model {number}"] = [model(TARGET), decoded.ids, decoded.scores]
        drawn = sample(*model.start(3, max_length=LENGTH), **options, seed=1, top_k=9, top_p=0.9)
        found[f"sampled {number}"] = [ops.shape(drawn.ids)]  # the noise is the backend's own
    stories = with_weights(MemoryNetwork(MemoryNetworkConfig(vocab=VOCAB, width=8)))
    found["memory network"] = [stories([SOURCE[:, None], TARGET])]
    classifier = keras_tfmr.SequenceClassifier(transformer(), num_classes=3)
    found["classifier"] = [with_weights(classifier)(TARGET)]
    still = keras_tfmr.TranslationModel(transformer(dropout_rate=0.0))
    found["weights after a step"] = after_a_step(with_weights(still))
    dropped = after_a_step(keras_tfmr.TranslationModel(transformer(dropout_rate=0.5)))
    found["finite after dropout"] = [np.isfinite(weight).all() for weight in dropped]
    return found


def as_arrays(found):
    """The same, flat and NumPy."""
    return {
        f"{name}, {place}": np.asarray(ops.convert_to_numpy(value))
        for name, values in found.items()
        for place, value in enumerate(values)
    }


if __name__ == "__main__":
    np.savez(sys.argv[1], **as_arrays(answers()))
    print("tensorflow" in sys.modules)
