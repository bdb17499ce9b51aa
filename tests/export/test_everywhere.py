"""Every layer, option and field, wherever a model goes: in configs, files, clones, copies, exports.

Each gives equal outputs there, or an error that names it.
"""

import dataclasses
import inspect
import typing
from functools import partial

import keras
import numpy as np
import pytest
from formulas import log_softmax
from helpers import OPTIONS, flat_numpy, randomize
from own_models import COMPOSED, check_same, inputs, logits_of, source_of
from text_models import LINES, Plain, tokenizer

from keras_tfmr import TransformerConfig, TransformerLanguageModel, Translator, layers
from keras_tfmr.errors import ExportError, PresetError
from keras_tfmr.finished import optimize_for_decoding
from keras_tfmr.models import Transformer, TranslationModel
from keras_tfmr.precision import copy_of
from keras_tfmr.text_models.text_model import shifted

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
# Not together with the others: frozen weights are not regularised, and float64 rounds less.
ALONE = {"use_bias", "dtype", "trainable"}
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

SIZE = tokenizer().vocab_size
BASE = TransformerConfig(
    source_vocab=SIZE, target_vocab=SIZE, encoder_layers=1, decoder_layers=1, d_model=16,
    num_heads=2, dff=32,
)  # fmt: skip
# Another value of every field, of those together that can be. A new field needs an entry.
FIELDS = {
    "sizes": dict(
        source_vocab=SIZE + 9, joint_vocab=False, encoder_layers=2, d_model=24, num_heads=4, dff=40,
        dropout_rate=0.5, attention_dropout_rate=0.5, key_dim=6, num_kv_heads=1, max_length=200,
    ),
    "layers": dict(
        decoder_layers=2, norm_first=True, norm="rms", norm_epsilon=0.01, qk_norm=True,
        activation="gelu_tanh", gated=True, use_bias=False, embedding_norm=True,
        positions="rotary", max_wavelength=100.0,
    ),
    "logits": dict(
        target_vocab=SIZE + 9, joint_vocab=False, tied_logits=False, logits_bias=True,
        embedding_scale=False,
    ),
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


@pytest.mark.parametrize("cls", PUBLIC)
def test_a_config_states_every_option(cls):
    needed = {
        name: NEEDED[name] for name in NEEDED if name in inspect.signature(cls.__init__).parameters
    }
    base = cls(**needed, name="layer")
    for option in options_of(cls):
        config = cls(**{**needed, "name": "layer", option: OTHERS[option]}).get_config()
        assert config != base.get_config(), option
        assert cls.from_config(config).get_config() == config, option


def test_every_layer_and_field_is_in_a_model():
    inside = {layers.MultiHeadAttention, layers.PostNormResidual, layers.PreNormResidual}
    assert PLACED | inside == {*PUBLIC} and not PLACED & inside
    for field in dataclasses.fields(TransformerConfig):
        others = [fields[field.name] for fields in FIELDS.values() if field.name in fields]
        assert others and getattr(BASE, field.name) not in others, field.name


def of_all_layers():
    """A translation model of all layers, with all other options."""

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
    return TranslationModel([source_ids, target_ids], make(layers.LMHead)(x))


def of_options(name, ready=Transformer):
    """A model of one of the kinds that many tests have."""
    tiny = TransformerConfig.preset("tiny", source_vocab=20, target_vocab=20)
    return ready(tiny.replace(encoder_layers=1, decoder_layers=1, **OPTIONS[name]))


def of_two_sides():
    """A model with options that a config states once for both sides, or not at all."""
    sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "dff": 32}
    source_ids = keras.Input((None,), dtype="int32", name="source_ids")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    source = layers.PositionalEmbedding(
        SIZE, 16, scaled=False, positions=layers.NoPositions(), norm=layers.LayerNormalization(0.1)
    )
    target = layers.PositionalEmbedding(SIZE, 16, norm=layers.LayerNormalization(0.01))
    encoder = layers.Encoder(
        **sizes, qk_norm=layers.LayerNormalization(0.1),
        relative_positions=layers.RotaryPositions(8), name="encoder",
    )  # fmt: skip
    decoder = layers.Decoder(**sizes, qk_norm=layers.LayerNormalization(0.01), name="decoder")
    x = decoder(target(target_ids), encoder(source(source_ids)))
    return TranslationModel([source_ids, target_ids], target(x, reverse=True))


def frozen():
    model = Transformer(BASE)
    model.get_layer("encoder").trainable = False
    model.get_layer("decoder").layers[0].feed_forward.trainable = False
    return model


def with_lora():
    model = Transformer(BASE)
    model.get_layer("decoder").layers[0].feed_forward.hidden_dense.enable_lora(2)
    return model


def with_fields(name):
    return Transformer(BASE.replace(**FIELDS[name]))


MODELS = {
    "all layers": of_all_layers, "two sides": of_two_sides, "frozen": frozen, "LoRA": with_lora,
    **{f"other {name}": partial(with_fields, name) for name in FIELDS},
    **{name: partial(of_options, name) for name in OPTIONS},
    **{f"{name}, a language model": partial(of_options, name, TransformerLanguageModel)
       for name in ("modern", "alibi")},
    **COMPOSED,
}  # fmt: skip
# The others are left to .ci/run.
OFTEN = "modern", "grouped", "alibi, a language model", "boxes"
EACH = [name if name in OFTEN else pytest.param(name, marks=pytest.mark.ci) for name in MODELS]


def from_file(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


def cloned(model, folder):
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    return clone


def copied(model, folder):
    return copy_of(model, "float32", merge_lora=False)


def from_preset(model, folder):
    return Translator.from_preset(translator_of(model).save_to_preset(folder / "preset")).model


def translator_of(model):
    return Plain(model, tokenizer(), max_source_length=64, languages=("pt", "en"))


def losses_of(model):
    """The sum of those that regularizers add."""
    model(inputs(model))
    return np.sum(model.losses)


@pytest.mark.parametrize("name", EACH)
def test_a_model_is_the_same_everywhere(name, tmp_path):
    """A finished one decodes the same, too, and keeps its outputs whatever becomes of the model."""
    model = MODELS[name]()
    randomize(model)
    arrays = inputs(model)
    expected = logits_of(model, arrays)
    ways = [from_file, cloned, copied]
    if isinstance(model, TranslationModel) and model.vocab_size >= SIZE:
        ways.append(from_preset)
    for way in ways if name not in COMPOSED else []:  # of classes that no file can name
        other = way(model, tmp_path)
        np.testing.assert_allclose(logits_of(other, arrays), expected, atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(losses_of(other), losses_of(model), rtol=1e-5)
        frozen = [[weight.trainable for weight in each.weights] for each in (model, other)]
        assert frozen[0] == frozen[1]
        assert way is cloned or other.config == model.config  # Keras gives a clone none
    finished = optimize_for_decoding(model)
    assert type(finished) is type(model) and finished.precision == "float32"
    check_same(model, finished, atol=1e-4 * max(1, np.abs(expected).max()))
    if isinstance(model, TranslationModel):
        explained = source_of(model), arrays[model.target_place]
        scores = [flat_numpy(each.explain(*explained)[1]) for each in (finished, model)]
        for one, other in zip(*scores, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)
    randomize(model, seed=9)
    np.testing.assert_allclose(logits_of(finished, arrays), expected, rtol=1e-4, atol=1e-4)


def exported(make, folder, format):
    """A translator with those of the fields that a format has a counterpart of, and its export.

    The others are refused by name.
    """
    fields = dict(make)
    while True:
        model = Transformer(BASE.replace(**fields))
        randomize(model)
        translator = translator_of(model)
        try:
            return translator, translator.export(folder, format=format)
        except ExportError as error:
            named = [field for field in fields if f"{field}=" in str(error)]
            assert named, error
            del fields[named[0]]


def ids():
    """Of texts and of texts as their translations, each with its end id."""
    return [
        tokenizer().encode_truncated(lines, 64)[0].numpy() for lines in (LINES[:3], LINES[3:])
    ]  # fmt: skip


def logits(model):
    """Those of the tokens of the translations."""
    source, target = ids()
    return np.asarray(model([source, shifted(target, tokenizer().bos_id)]))[target != 0]


def check_marian(path, expected):
    """The logits of a MarianMTModel, as read from its folder, which gives `<s>` a second id, 4.

    Padding, the unknown and the start id are banned in it.
    """
    source, target = (each + (each > 3) for each in ids())
    read = Translator.from_preset(path)
    assert read.languages == ("pt", "en")
    found = np.asarray(read.model([source, shifted(target, tokenizer().bos_id)]))[target != 0]
    found = np.delete(found, 4, axis=1)
    np.testing.assert_allclose(found[:, 3:], expected[:, 3:], atol=1e-3)


@pytest.mark.ci
@pytest.mark.needs("ctranslate2")
@pytest.mark.parametrize("name", FIELDS)
def test_ctranslate2_computes_the_same_or_its_export_names_the_field(name, tmp_path):
    import ctranslate2

    translator, path = exported(FIELDS[name], tmp_path / "exported", "ctranslate2")
    engine = ctranslate2.Translator(str(path), compute_type="float32")
    sides = [tokenizer().pieces(side).numpy() for side in ids()]
    pieces = [[[p.decode() for p in row if p][:-1] for row in side] for side in sides]
    found = [log_prob for scored in engine.score_batch(*pieces) for log_prob in scored.log_probs]
    target = ids()[1]
    log_probs = log_softmax(logits(translator.model))
    expected = log_probs[np.arange(len(log_probs)), target[target != 0]]
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.ci
@pytest.mark.parametrize("name", FIELDS)
def test_a_marian_mt_model_computes_the_same_or_its_export_names_the_field(name, tmp_path):
    """`test_other_formats.py` has transformers itself read such folders."""
    translator, path = exported(FIELDS[name], tmp_path / "exported", "transformers")
    check_marian(path, logits(translator.model))


def test_what_a_config_does_not_say_is_exported_too(tmp_path):
    model = with_lora()
    randomize(model)
    path = translator_of(model).export(tmp_path / "exported", format="transformers")
    check_marian(path, logits(model))


def quantized():
    model = Transformer(BASE)
    model.get_layer("encoder").layers[0].feed_forward.hidden_dense.quantize("int8")
    return model


@pytest.mark.parametrize(
    "make, why",
    [
        (of_two_sides, r"needs a model that Transformer\(config\) made"),
        (quantized, "needs weights that are not quantised"),
    ],
)
def test_what_other_engines_cannot_hold_is_refused(make, why, tmp_path):
    translator = translator_of(make())
    for format in ("transformers", "ctranslate2"):
        with pytest.raises(ExportError, match=why):
            translator.export(tmp_path / "exported", format=format)
    if make is quantized:
        with pytest.raises(PresetError, match="neither quantised nor"):
            translator.save_to_preset(tmp_path / "preset")
    assert not any(tmp_path.iterdir())
