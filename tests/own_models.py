"""Models of somebody's own, combined from our layers and others, for all tests that need one."""

import formulas
import keras
import numpy as np
from helpers import flat_numpy, random, random_ids, randomize, to_numpy
from keras import ops

from keras_tfmr.layers import (
    CausalSelfAttention,
    CrossAttention,
    Decoder,
    DecoderLayer,
    Encoder,
    FeedForward,
    LMHead,
    PositionalEmbedding,
)
from keras_tfmr.models import LanguageModel, TranslationModel

SIZES = {"num_layers": 1, "d_model": 16, "num_heads": 2, "dff": 32}


def of_ids(vocab=20):
    """Of source and target ids; a Dense stands before the decoder, and another before the head."""
    source_ids = keras.Input((None,), dtype="int32", name="source_ids")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    context = Encoder(**SIZES, name="encoder")(PositionalEmbedding(vocab, 16)(source_ids))
    context = keras.layers.Dense(12, activation="tanh")(context)
    x = Decoder(**SIZES, name="decoder")(PositionalEmbedding(vocab, 16)(target_ids), context)
    x = keras.layers.Dense(16, activation="tanh")(x)
    return randomized(TranslationModel([source_ids, target_ids], LMHead(vocab)(x)))


def of_pictures(vocab=20):
    """Of pictures `[batch, 8, 8, 3]` and target ids, whose encoder is a convolution."""
    pictures = keras.Input((8, 8, 3), name="pictures")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    context = keras.layers.Conv2D(16, 4, 4, activation="tanh")(pictures)
    context = keras.layers.Reshape((4, 16), name="encoder")(context)
    x = Decoder(**SIZES, name="decoder")(PositionalEmbedding(vocab, 16)(target_ids), context)
    return randomized(TranslationModel([pictures, target_ids], LMHead(vocab)(x)))


def of_layers(vocab=20):
    """A chain of decoder layers, pre-norm, over a source whose mask they are given by Keras."""
    source_ids = keras.Input((None,), dtype="int32", name="source_ids")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    context = Encoder(**SIZES, name="encoder")(PositionalEmbedding(vocab, 16)(source_ids))
    x = PositionalEmbedding(vocab, 16)(target_ids)
    for number in range(2):
        x = DecoderLayer(16, 2, 32, norm_first=True, name=f"decoder_{number}")(x, context)
    return randomized(TranslationModel([source_ids, target_ids], LMHead(vocab)(x)))


def of_boxes(vocab=20):
    """Figure 1 box by box, with a language ID, an adapter, and an output for a second loss."""
    source_ids = keras.Input((None,), dtype="int32", name="source_ids")
    language = keras.Input((1,), dtype="int32", name="language")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    embedding = PositionalEmbedding(vocab, 16)
    context = Encoder(**SIZES, name="encoder")(embedding(source_ids))
    x = keras.layers.Add()([embedding(target_ids), keras.layers.Embedding(vocab, 16)(language)])
    x = CausalSelfAttention(num_heads=2, key_dim=8)(x)
    x = CrossAttention(num_heads=2, key_dim=8)(x, context)
    x = x + keras.layers.Dense(16, activation="gelu")(x)
    x = FeedForward(d_model=16, dff=32)(x)
    outputs = {"logits": embedding(x, reverse=True), "tags": keras.layers.Dense(5)(x)}
    return randomized(TranslationModel([source_ids, language, target_ids], outputs))


def of_two_contexts(vocab=20):
    """Of a source text and a picture, to both of which each layer attends."""
    source_ids = keras.Input((None,), dtype="int32", name="source_ids")
    picture = keras.Input((8, 8, 3), name="picture")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    text = Encoder(**SIZES, name="encoder")(PositionalEmbedding(vocab, 16)(source_ids))
    patches = keras.layers.Reshape((4, 16))(keras.layers.Conv2D(16, 4, 4)(picture))
    x = PositionalEmbedding(vocab, 16)(target_ids)
    x = DecoderLayer(16, 2, 32)(x, text)
    x = CrossAttention(num_heads=2, key_dim=8)(x, patches)
    return randomized(TranslationModel([source_ids, picture, target_ids], LMHead(vocab)(x)))


@keras.saving.register_keras_serializable(package="tests")
class CausalConvolution(keras.layers.Layer):
    """A layer of somebody's own that mixes positions: each sees itself and the two before it."""

    def __init__(self, width=16, **kwargs):
        super().__init__(**kwargs)
        self.convolution = keras.layers.Conv1D(width, 3, dtype=self.dtype_policy)
        self.supports_masking, self.width = True, width

    def build(self, x_shape):
        self.convolution.build(x_shape)

    def call(self, x):
        padded = ops.concatenate([ops.zeros_like(x[:, :1])] * 2 + [x], axis=1)
        return self.convolution(padded)

    def compute_output_shape(self, x_shape):
        return x_shape

    def empty_cache(self, rows, room=None):
        return ops.zeros((rows, 2, self.width))

    def step(self, x, cache, index):
        x = ops.concatenate([cache, x], axis=1)
        return self.convolution(x), x[:, -2:]


@keras.saving.register_keras_serializable(package="tests")
class TwoParts(keras.layers.Layer):
    """A layer of each position, whose parts Keras names."""

    position_wise = True

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second = (keras.layers.Dense(16, dtype=self.dtype_policy) for _ in "ab")

    def build(self, x_shape):
        self.first.build(x_shape)
        self.second.build(x_shape)

    def call(self, x):
        return self.second(self.first(x))


def of_a_layer_of_ones_own(vocab=20):
    """Between embedding and decoder, and with a mask that Keras gives it."""
    source_ids = keras.Input((None,), dtype="int32", name="source_ids")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    context = Encoder(**SIZES, name="encoder")(PositionalEmbedding(vocab, 16)(source_ids))
    x = CausalConvolution()(PositionalEmbedding(vocab, 16)(target_ids))
    x = Decoder(**SIZES, name="decoder")(x, context)
    return randomized(TranslationModel([source_ids, target_ids], LMHead(vocab)(x)))


def randomized(model):
    randomize(model)
    return model


def source_of(model, rows=3):
    """The inputs but the target ids, a dictionary of several; of ids, some have none at all."""
    found = {
        tensor.name: array_for(tensor, rows)
        for tensor in model.inputs
        if tensor.name != "target_ids"
    }
    return found if len(found) > 1 else found.popitem()[1]


def array_for(tensor, rows=3):
    """Numbers for an input; of ids of any length, some are padding, a third in whole examples."""
    shape = [rows, *(size or 6 for size in tensor.shape[1:])]
    if "float" in tensor.dtype:
        return random(*shape)
    ids = random_ids(*shape, vocab=20)
    if None in tensor.shape[1:]:
        ids[1::3, 4:], ids[2::3] = 0, 0
    return ids


OWN = {"own layers": of_ids, "pictures": of_pictures}
COMPOSED = {
    **OWN, "chain of layers": of_layers, "boxes": of_boxes, "two contexts": of_two_contexts,
    "a step of one's own": of_a_layer_of_ones_own,
}  # fmt: skip


def inputs(model):
    """Arrays for all inputs. Of target ids, some are padding, and no example is that alone."""
    target = random_ids(3, 5, vocab=20, seed=1)
    target[1, 2:] = 0
    written = "target_ids", "token_ids"
    return [target if t.name in written else array_for(t) for t in model.inputs]


def outputs_of(model, arrays):
    return flat_numpy(model(arrays if len(arrays) > 1 else arrays[0]))


def logits_of(model, arrays):
    return outputs_of(model, arrays)[getattr(model, "logits_place", 0)]


def check_same(model, copy, atol=1e-4, beams=3):
    """The whole pass and the steps of the copy are those of the model; beams can be reordered."""
    arrays = inputs(model)
    np.testing.assert_allclose(logits_of(copy, arrays), logits_of(model, arrays), atol=atol)
    rows = np.arange(3 * beams, dtype="int32")
    order = rows - rows % beams + (rows % beams + 1) // 2  # the third goes on from the second
    target = random_ids(len(rows), 5, vocab=20, seed=1)
    moved = np.concatenate([target[order, :2], target[:, 2:]], axis=1)
    sources = [np.repeat(each, beams, axis=0) for each in arrays[:-1]]
    before, after = (
        formulas.log_softmax(logits_of(model, [*sources, each])) for each in (target, moved)
    )
    source = 3 if isinstance(model, LanguageModel) else source_of(model)
    step, state = copy.start(source, num_beams=beams, max_length=5)
    for position in range(5):
        log_probs, state = step.next(ops.convert_to_tensor(target[:, position]), state)
        expected = (before if position < 2 else after)[:, position]
        np.testing.assert_allclose(to_numpy(log_probs), expected, atol=atol)
        if position == 1:
            state = step.reorder(state, ops.convert_to_tensor(order))
