"""LoRA, frozen layers and their errors; tests/export/test_everywhere.py has files and clones."""

from functools import partial

import keras
import numpy as np
import pytest
from everywhere_models import combined
from helpers import learning, random, to_numpy
from own_models import SIZES, inputs

from keras_tfmr import LabelSmoothedCrossEntropy
from keras_tfmr.layers import (
    CausalDecoder,
    CrossAttention,
    Decoder,
    Encoder,
    EncoderLayer,
    FeedForward,
    LearnedPositions,
    MultiHeadAttention,
    PositionalEmbedding,
)
from keras_tfmr.models import TranslationModel

# What makes a layer with attention, how many inputs it has, and the number of its attentions.
WITH_ATTENTION = {
    "MultiHeadAttention": (partial(MultiHeadAttention, 2, 4), 1, 1),
    "CrossAttention": (partial(CrossAttention, 2, 4), 2, 1),
    "EncoderLayer": (partial(EncoderLayer, 16, 2, 16), 1, 1),
    "Decoder": (partial(Decoder, **SIZES), 2, 2),
    "TranslationModel": (partial(combined, TranslationModel), 0, 4),
}


@pytest.mark.parametrize("name", WITH_ATTENTION)
def test_lora_of_queries_and_values(name):
    """As KerasHub's `Backbone.enable_lora`."""
    make, number, count = WITH_ATTENTION[name]
    layer = make()
    arrays = [random(2, 3, 16)] * number or [inputs(layer)]
    before = to_numpy(layer(*arrays))
    layer.enable_lora(2, lora_alpha=3)
    np.testing.assert_allclose(layer(*arrays), before, atol=1e-6)
    train = ["/".join(w.path.split("/")[-3:]) for w in layer.trainable_variables]
    added = ("bias", "lora_kernel_a", "lora_kernel_b")
    expected = [f"attention/{side}/{weight}" for side in ("query", "value") for weight in added]
    if name == "MultiHeadAttention":  # whose own name Keras made
        train = [f"attention/{'/'.join(each.split('/')[-2:])}" for each in train]
    assert sorted(train) == sorted(expected * count)


def test_lora_learns_before_and_after_a_file(tmp_path):
    model = combined(TranslationModel)
    model.enable_lora(2)
    arrays, still = inputs(model), [to_numpy(weight) for weight in model.non_trainable_weights]
    for path in ("first.keras", "second.keras"):
        model.compile(keras.optimizers.SGD(0.1), LabelSmoothedCrossEntropy(), jit_compile=False)
        values = [to_numpy(weight) for weight in model.trainable_weights]
        with learning():
            model.train_on_batch(arrays, arrays[1])
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
        vectors = keras.Input((None, 16))
        model = keras.Model(vectors, keras.layers.Dense(2)(layer(vectors)))
        for each in (model, keras.models.clone_model(model)):
            assert len(each.trainable_variables) == 2


def test_what_cannot_be_kept_is_an_error_when_it_is_saved(tmp_path):
    positions = LearnedPositions(9, 8, name="tokens")  # the name of another layer inside
    token_ids = keras.Input((None,), dtype="int32")
    embedding = PositionalEmbedding(20, 8, positions=positions)
    model = keras.Model(token_ids, embedding(token_ids))
    embedding.tokens.trainable = False
    with pytest.raises(ValueError, match=r"different names.*Received: 'tokens' twice"):
        model.save(tmp_path / "model.keras")
    embedding.tokens.trainable = True
    embedding.tokens.embeddings.trainable = False
    with pytest.raises(ValueError, match=r"/tokens/embeddings' with trainable=False, in a layer"):
        model.save(tmp_path / "model.keras")
    embedding.tokens.embeddings.trainable = True
    model.save(tmp_path / "model.keras")
