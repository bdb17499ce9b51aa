"""Encoder, decoders and their layers: caches, causality, contracts, errors."""

import keras
import numpy as np
import pytest
from helpers import random, random_ids, randomize, to_numpy

from keras_tfmr import Decoder, Encoder, EncoderLayer, PositionalEmbedding, TranslationModel
from keras_tfmr.layers import CausalDecoder, SSRUDecoder

SIZES = dict(d_model=8, num_heads=2, dff=20)
STACK = dict(num_layers=2, vocab_size=20, **SIZES)
ONE = {**STACK, "num_layers": 1}
BATCH, TARGET, SOURCE = 3, 5, 6
X, CONTEXT = random(BATCH, TARGET, 8), random(BATCH, SOURCE, 8, seed=4)


def test_embedding_dropout_in_training():
    encoder = Encoder(**ONE, dropout_rate=0.5)
    ids = random_ids(2, 5, vocab=20)
    encoder(ids)
    encoder.layers = []  # what is left is the embedding with its dropout
    dropped = to_numpy(encoder(ids, training=True)) == 0
    assert 0.3 < dropped.mean() < 0.7
    assert (to_numpy(encoder(ids)) == to_numpy(encoder.embedding(ids))).all()


@pytest.mark.parametrize(
    "kind, options",
    [(Decoder, {"norm_first": True}), (Decoder, {"value_dim": 3}), (SSRUDecoder, {})],
)
def test_tokens_one_or_several_at_a_time_equal_all_at_once(kind, options):
    """With the scores, which are zero for an example without a context."""
    decoder = kind(**STACK, **options)
    ids = random_ids(BATCH, TARGET, vocab=20)
    mask = np.arange(SOURCE) < np.array([[SOURCE], [4], [0]])
    decoder(ids, CONTEXT)
    randomize(decoder)
    whole = decoder(ids, CONTEXT, context_mask=mask, return_attention_scores=True)
    places = TARGET if kind is Decoder else 1
    context_cache, cache = decoder.context_cache(CONTEXT, mask), decoder.cache(BATCH, places)
    for begin, end in ((0, 1), (1, 3), (3, TARGET)):
        *part, cache = decoder(
            ids[:, begin:end], cache=cache, cache_index=begin, context_cache=context_cache,
            return_attention_scores=True,
        )  # fmt: skip
        np.testing.assert_allclose(part[0], whole[0][:, begin:end], atol=1e-5)
        for of_all, of_part in zip(*map(keras.tree.flatten, (whole[1:], part[1:])), strict=True):
            np.testing.assert_allclose(of_all[:, :, begin:end], of_part, atol=1e-6)
    assert not to_numpy(part[-1][0])[2].any()


@pytest.mark.parametrize("kind", [Decoder, CausalDecoder])
@pytest.mark.parametrize("dropout, scores, padding", [(0.0, False, False), (0.4, True, True)])
def test_what_comes_later_changes_nothing(dropout, scores, padding, kind):
    """Outputs up to t are bit for bit the same, whatever stands after t."""
    stack = kind(**STACK, dropout_rate=dropout)
    context = [CONTEXT] if kind is Decoder else []
    # Two real positions at least, so that every row sees something change.
    real = np.arange(7) < np.array([[7], [5], [2]]) if padding else np.ones((3, 7), bool)

    def run(ids):
        keras.utils.set_random_seed(11)  # dropout draws the same numbers at every call
        for part in stack._flatten_layers():
            if isinstance(part, keras.layers.Dropout) and part.rate > 0:
                part.seed_generator.state.assign([1, 2])
        options = {"training": dropout > 0, "return_attention_scores": scores}
        output = stack(np.where(real, ids, 0), *context, **options)
        return to_numpy(output[0] if scores else output)

    ids = random_ids(BATCH, 7, vocab=20)
    reference = run(ids)
    for t in range(1, 7):
        changed = run(np.concatenate([ids[:, :t], random_ids(3, 7 - t, vocab=20, seed=t)], axis=1))
        np.testing.assert_array_equal(changed[:, :t], reference[:, :t])
        assert np.abs(changed[:, t:] - reference[:, t:]).max() > 0, "nothing changed"


def test_key_dim_defaults_to_the_width_shared_by_the_heads():
    config = EncoderLayer(d_model=12, num_heads=3, dff=8).get_config()
    for width, expected in ((12, 4), (24, 8)):  # not frozen in the config
        layer = EncoderLayer.from_config({**config, "d_model": width})
        assert layer.self_attention.attention.key_dim == expected
    with pytest.raises(ValueError, match=r"divisible.*Received: d_model=10, num_heads=4"):
        EncoderLayer(d_model=10, num_heads=4, dff=8)
    EncoderLayer(d_model=10, num_heads=4, dff=8, key_dim=3)(random(2, 5, 10))


def test_a_vocabulary_or_an_embedding_is_needed():
    embedding = PositionalEmbedding(9, 6)
    for bad, received in (
        (dict(vocab_size=None), r"either `vocab_size` or `embedding`.*None"),
        (dict(embedding=embedding), r"either `vocab_size` or `embedding`.*20"),
        (dict(vocab_size=None, embedding=embedding), r"d_model=8.*Received.*6"),
    ):
        with pytest.raises(ValueError, match=received):
            Encoder(**{**ONE, **bad})


def test_parts_of_another_kind_are_named():
    for make, message in (
        (lambda: Encoder(**ONE, relative_positions="rotary"), r"`relative_positions`.*'rotary'"),
        (lambda: TranslationModel(random_ids(2, 5, vocab=20)), r"`config`.*Received: ndarray"),
    ):
        with pytest.raises(TypeError, match=message):
            make()


@pytest.mark.backends("tensorflow")  # no other has such tensors
def test_ids_of_unknown_rank_are_named():
    import tensorflow as tf

    encoder = Encoder(**ONE)
    encoder(random_ids(2, 5, vocab=20))
    with pytest.raises(ValueError, match=r"must have shape.*Received: a tensor of unknown rank"):
        tf.function(encoder).get_concrete_function(tf.TensorSpec(None, "int32"))
