"""Every option of every layer, wherever a model goes: stated in configs, and equal outputs."""

import inspect
import typing

import keras
import numpy as np
import pytest
from helpers import randomize
from own_models import check_same, inputs, logits_of

from keras_tfmr import layers
from keras_tfmr.finished import optimize_for_decoding
from keras_tfmr.models import TranslationModel

PUBLIC = [
    each
    for each in map(layers.__dict__.get, layers.__all__)
    if isinstance(each, type) and issubclass(each, keras.layers.Layer)
]
# Arguments that a layer needs. {name: the value at first}
NEEDED = {
    "num_layers": 2, "d_model": 16, "num_heads": 2, "dff": 32, "key_dim": 8, "vocab_size": 20,
    "units": 20, "max_length": 9, "bidirectional": False, "rate": 0.1,
}  # fmt: skip
# Another value of every option of any layer. A new option needs an entry.
OTHERS = {
    "num_layers": 1, "d_model": 24, "num_heads": 4, "dff": 40, "key_dim": 6, "vocab_size": 21,
    "units": 21, "max_length": 10, "bidirectional": True, "rate": 0.5,
    "num_kv_heads": 1, "value_dim": 5, "output_shape": 24, "dropout_rate": 0.5,
    "attention_dropout_rate": 0.4, "norm_first": True, "activation": "gelu", "gated": True,
    "use_bias": False, "qk_norm": layers.RMSNormalization(0.01),
    "norm": layers.RMSNormalization(0.1), "relative_positions": layers.RotaryPositions(6),
    "positions": layers.LearnedPositions(9, 24), "scaled": False, "mask_zero": False,
    "logits_bias": True, "max_wavelength": 50.0, "num_buckets": 8, "max_distance": 19,
    "epsilon": 0.01, "seed": 3,
    "kernel_initializer": "he_normal", "bias_initializer": "ones", "kernel_regularizer": "l2",
    "bias_regularizer": "l1", "kernel_constraint": "non_neg", "bias_constraint": "non_neg",
    "activity_regularizer": "l2", "name": "another", "dtype": "float64", "trainable": False,
}  # fmt: skip
REFUSED = {"noise_shape", "axis"}  # by an error, if they are not what they are at first
# The layers of a model that has them all; one inside another is among the options of that.
IN_THE_SOURCE = layers.AddPositions, layers.GlobalSelfAttention, layers.EncoderLayer, layers.Encoder
WITH_CONTEXT = layers.CrossAttention, layers.DecoderLayer, layers.Decoder
IN_THE_TARGET = (
    layers.CausalDecoder, layers.CausalDecoderLayer, layers.CausalSelfAttention,
    layers.FeedForward, layers.GatedFeedForward, layers.Dropout, layers.LayerNormalization,
    layers.RMSNormalization,
)  # fmt: skip
POSITIONS = layers.SinusoidalPositions, layers.LearnedPositions, layers.NoPositions
RELATIVE = layers.RotaryPositions, layers.RelativePositionBias, layers.ALiBi
PLACED = {
    layers.PositionalEmbedding, layers.LMHead, *IN_THE_SOURCE, *WITH_CONTEXT, *IN_THE_TARGET,
    *POSITIONS, *RELATIVE,
}  # fmt: skip


def options_of(cls):
    """The names of the options of a constructor; `**options` stand for those of their TypedDict."""
    names = set()
    for parameter in list(inspect.signature(cls.__init__).parameters.values())[1:]:
        if parameter.kind is not parameter.VAR_KEYWORD:
            names.add(parameter.name)
        elif parameter.annotation is typing.Any:
            names |= {"name", "dtype", "trainable"}
        else:
            names |= {*typing.get_args(parameter.annotation)[0].__annotations__}
    return names - REFUSED


def needed(cls):
    parameters = inspect.signature(cls.__init__).parameters
    return {name: NEEDED[name] for name in NEEDED if name in parameters}


@pytest.mark.parametrize("cls", PUBLIC)
def test_every_option_is_stated_in_the_config(cls):
    base = cls(**needed(cls), name="layer")
    for option in options_of(cls):
        changed = cls(**{**needed(cls), "name": "layer", option: OTHERS[option]})
        config = changed.get_config()
        assert config != base.get_config(), option
        assert cls.from_config(config).get_config() == config, option


# Not together with the others: frozen weights are not regularised, and float64 rounds less.
# `test_config_fields.py` has them.
ALONE = {"use_bias", "dtype", "trainable"}


def model_of_all():
    """A translation model of all layers, with all other options, and random weights."""

    def make(cls, **given):
        options = {name: OTHERS[name] for name in options_of(cls) - {"name", *ALONE}}
        for name in ("positions", "relative_positions"):
            if name in options:  # a layer for each
                options[name] = type(OTHERS[name]).from_config(OTHERS[name].get_config())
        return cls(**{**options, **given})

    source_ids = keras.Input((None,), dtype="int32", name="source_ids")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    context, x = make(layers.PositionalEmbedding)(source_ids), 0
    for cls in IN_THE_SOURCE:
        context = make(cls)(context)
    for cls in POSITIONS:
        x = x + make(layers.PositionalEmbedding, positions=make(cls))(target_ids)
    for cls in RELATIVE:
        x = make(layers.CausalDecoder, relative_positions=make(cls))(x)
    for cls in IN_THE_TARGET:
        x = make(cls)(x)
    for cls in WITH_CONTEXT:
        x = make(cls)(x, context)
    model = TranslationModel([source_ids, target_ids], make(layers.LMHead)(x))
    randomize(model)
    return model


def losses_of(model):
    """The sum of those that regularizers add."""
    model(inputs(model))
    return np.sum(model.losses)


def test_every_layer_is_in_the_model_or_inside_others():
    inside = {layers.MultiHeadAttention, layers.PostNormResidual, layers.PreNormResidual}
    assert PLACED | inside == {*PUBLIC} and not PLACED & inside


@pytest.mark.ci
def test_a_model_of_all_is_saved_cloned_finished_and_decoded(tmp_path):
    model = model_of_all()
    assert model.why_not_cached() is None
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    expected = logits_of(model, inputs(model))
    for other in (loaded, clone):
        np.testing.assert_allclose(logits_of(other, inputs(model)), expected, atol=1e-5)
        np.testing.assert_allclose(losses_of(other), losses_of(model), rtol=1e-5)
        assert len(other.trainable_weights) == len(model.trainable_weights)
    for other in (model, optimize_for_decoding(model)):
        check_same(model, other, atol=1e-4)
