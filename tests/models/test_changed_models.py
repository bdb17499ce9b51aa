"""What was changed of layers after they were made stays so: frozen, quantised, given LoRA.

In files that a fresh process loads, and in clones; of Keras's models and of ours.
"""

import warnings
from functools import partial

import keras
import numpy as np
import pytest
from fresh_process import outputs_and_weights, weights_of
from helpers import learning, random, randomize, to_numpy

from keras_tfmr import LabelSmoothedCrossEntropy, recurrent
from keras_tfmr.layers import (
    CausalDecoder,
    CrossAttention,
    Decoder,
    Encoder,
    EncoderLayer,
    FeedForward,
    LearnedPositions,
    LMHead,
    MultiHeadAttention,
    PositionalEmbedding,
)
from keras_tfmr.models import TranslationModel

VOCAB, SIZES = 20, dict(num_layers=1, d_model=8, num_heads=2, dff=16)
SOURCE = np.array([[5, 7, 3, 0], [4, 9, 11, 3]], "int32")
TARGET = np.array([[2, 9, 4], [2, 6, 0]], "int32")


def sub_model(name):
    """One of several whose layers have the same names."""
    inputs = keras.Input((None, 8))
    x = keras.layers.Dense(8, name="same")(Encoder(**SIZES, name="stack")(inputs))
    return keras.Model(inputs, x, name=name)


def combined(kind):
    source, target = (
        keras.Input((None,), dtype="int32", name=name) for name in ("source_ids", "target_ids")
    )
    context = sub_model("first")(PositionalEmbedding(VOCAB, 8, mask_zero=False)(source))
    context = sub_model("second")(context)
    dense = [keras.layers.Dense(8), keras.layers.Dense(8)]
    context = keras.Sequential(dense, name="sequential")(context)
    x = PositionalEmbedding(VOCAB, 8, logits_bias=True)(target)
    x = Decoder(**SIZES, name="decoder")(x, context)
    return kind([source, target], LMHead(VOCAB)(x))


def rnnsearch():
    config = recurrent.RNNSearchConfig.preset("tiny", source_vocab=VOCAB, target_vocab=VOCAB)
    with recurrent.dtype_policy("mixed_bfloat16"):
        return recurrent.RNNSearchModel(config)


def partly_frozen(model):
    model.get_layer("sequential").layers[0].trainable = False
    model.get_layer("first").get_layer("stack").layers[0].feed_forward.trainable = False
    model.get_layer("second").trainable = False
    decoder = model.get_layer("decoder")
    decoder.trainable = False
    decoder.layers[0].self_attention.residual.norm.trainable = True
    decoder.layers[0].cross_attention.attention.output_dense.trainable = True


def quantized(model, mode="int8"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras names each layer with nothing to quantise
        model.quantize(mode)


def of_all_kinds(model):
    """One of two sub-models in int8; LoRA, also of what is quantised; one LoRA frozen."""
    second, decoder = model.get_layer("second"), model.get_layer("decoder")
    quantized(second)
    for layer in (decoder.layers[0], second.get_layer("stack").layers[0]):
        layer.feed_forward.hidden_dense.enable_lora(2, lora_alpha=3)
        layer.self_attention.attention.output_dense.enable_lora(1)
        layer.self_attention.trainable = False
    with_random_lora(model)


def with_random_lora(model):
    for weight in model.weights:
        if "lora" in weight.name:
            weight.assign(random(*weight.shape, scale=0.1))


def recurrent_changes(model):
    model.encoder.forward_gru.cell.trainable = False
    model.decoder.word_dense.enable_lora(2)
    with_random_lora(model)
    model.source_embedding.trainable = False


CASES = {
    f"{change.__name__} in {kind.__name__}": (partial(combined, kind), change)
    for kind in (keras.Model, TranslationModel)
    for change in (partly_frozen, quantized, of_all_kinds)
} | {
    "in RNNSearchModel": (rnnsearch, recurrent_changes),
    "quantized in RNNSearchModel": (rnnsearch, quantized),
}


@pytest.mark.parametrize("name", CASES)
def test_a_change_stays_in_files_and_clones(name, fresh, tmp_path):
    make, change = CASES[name]
    model = make()
    randomize(model)
    before = weights_of(model)
    change(model)
    changed = weights_of(model)
    assert [each[:3] for each in changed] != [each[:3] for each in before]
    model.save(tmp_path / "model.keras")
    logits = to_numpy(model([SOURCE, TARGET]))
    (loaded,), weights = fresh(tmp_path / "model.keras", [SOURCE, TARGET], outputs_and_weights)
    clone = weights_of(keras.models.clone_model(model))
    for found in (weights, clone):
        assert [each[:3] for each in found] == [each[:3] for each in changed]
    for found, wanted in zip(weights, changed, strict=True):
        np.testing.assert_array_equal(found[3], wanted[3])
    np.testing.assert_allclose(loaded, logits, atol=1e-5)


# What makes a layer with attention, its inputs, and the number of its attentions.
X = random(2, 3, 8)
WITH_ATTENTION = {
    "MultiHeadAttention": (partial(MultiHeadAttention, 2, 4), [X], 1),
    "CrossAttention": (partial(CrossAttention, 2, 4), [X, X], 1),
    "EncoderLayer": (partial(EncoderLayer, 8, 2, 16), [X], 1),
    "Decoder": (partial(Decoder, **SIZES), [X, X], 2),
    "TranslationModel": (partial(combined, TranslationModel), [[SOURCE, TARGET]], 4),
}


@pytest.mark.parametrize("name", WITH_ATTENTION)
def test_lora_of_queries_and_values(name):
    """As KerasHub's `Backbone.enable_lora`."""
    make, inputs, count = WITH_ATTENTION[name]
    layer = make()
    before = to_numpy(layer(*inputs))
    layer.enable_lora(2, lora_alpha=3)
    np.testing.assert_allclose(layer(*inputs), before, atol=1e-6)
    train = ["/".join(w.path.split("/")[-3:]) for w in layer.trainable_variables]
    added = ("bias", "lora_kernel_a", "lora_kernel_b")
    expected = [f"attention/{side}/{weight}" for side in ("query", "value") for weight in added]
    if name == "MultiHeadAttention":  # whose own name Keras made
        train = [f"attention/{'/'.join(each.split('/')[-2:])}" for each in train]
    assert sorted(train) == sorted(expected * count)


def test_lora_learns_before_and_after_a_file(tmp_path):
    model = combined(TranslationModel)
    model.enable_lora(2)
    still = [to_numpy(weight) for weight in model.non_trainable_weights]
    for path in ("first.keras", "second.keras"):
        model.compile(keras.optimizers.SGD(0.1), LabelSmoothedCrossEntropy())
        values = [to_numpy(weight) for weight in model.trainable_weights]
        with learning():
            model.train_on_batch([SOURCE, TARGET], TARGET)
        model.save(tmp_path / path)
        model = keras.models.load_model(tmp_path / path)
        for weight, value in zip(model.trainable_weights, values, strict=True):
            # The first product is with zeros, so that only one of them learns at first.
            if path == "second.keras" or "lora_kernel_a" not in weight.name:
                assert np.abs(to_numpy(weight) - value).max() > 0, weight.path
        for weight, value in zip(model.non_trainable_weights, still, strict=True):
            np.testing.assert_array_equal(weight, value)


@pytest.mark.parametrize(
    "make, rank, message",
    [
        (partial(EncoderLayer, 8, 2, 16), 2, "built.*Received: EncoderLayer.*built=False and 2"),
        (partial(FeedForward, 8, 16), 2, "attention.*Received: FeedForward.* and 0 proj"),
        (partial(combined, TranslationModel), 0, "rank=0"),
    ],
)
def test_lora_where_there_can_be_none(make, rank, message):
    with pytest.raises(ValueError, match=message):
        make().enable_lora(rank)


def test_a_layer_that_is_frozen_before_it_is_built_trains_nothing():
    """All that is inside it, which Keras would train."""
    made_frozen = Encoder(**SIZES, norm_first=True, trainable=False)
    frozen = CausalDecoder(**SIZES)
    frozen.trainable = False
    for layer in (made_frozen, frozen):
        inputs = keras.Input((None, 8))
        model = keras.Model(inputs, keras.layers.Dense(2)(layer(inputs)))
        for each in (model, keras.models.clone_model(model)):
            assert len(each.trainable_variables) == 2


def test_what_cannot_be_kept_is_an_error_when_it_is_saved(tmp_path):
    positions = LearnedPositions(9, 8, name="tokens")  # the name of another layer inside
    inputs = keras.Input((None,), dtype="int32")
    embedding = PositionalEmbedding(VOCAB, 8, positions=positions)
    model = keras.Model(inputs, embedding(inputs))
    embedding.tokens.trainable = False
    with pytest.raises(ValueError, match=r"different names.*Received: 'tokens' twice"):
        model.save(tmp_path / "model.keras")
    embedding.tokens.trainable = True
    embedding.tokens.embeddings.trainable = False
    with pytest.raises(ValueError, match=r"/tokens/embeddings' with trainable=False, in a layer"):
        model.save(tmp_path / "model.keras")
    embedding.tokens.embeddings.trainable = True
    model.save(tmp_path / "model.keras")
