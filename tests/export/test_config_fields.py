"""Every field of a config, wherever a model goes: equal outputs, or an error that names it."""

import dataclasses

import keras
import numpy as np
import pytest
from formulas import log_softmax
from text_models import LINES, Plain, tokenizer

from keras_tfmr import TransformerConfig, Translator, layers
from keras_tfmr.errors import ExportError, PresetError
from keras_tfmr.finished import optimize_for_decoding
from keras_tfmr.models import Transformer, TranslationModel
from keras_tfmr.text_models.text_model import shifted

SIZE = tokenizer().vocab_size
BASE = TransformerConfig(
    source_vocab=SIZE, target_vocab=SIZE, encoder_layers=1, decoder_layers=1, d_model=16,
    num_heads=2, dff=32,
)  # fmt: skip
# {field: another value, with what else has to be other then}. A new field needs an entry.
FIELDS = {
    "source_vocab": {"source_vocab": SIZE + 9, "joint_vocab": False},
    "target_vocab": {"target_vocab": SIZE + 9, "joint_vocab": False},
    "encoder_layers": {"encoder_layers": 2},
    "decoder_layers": {"decoder_layers": 2},
    "d_model": {"d_model": 24},
    "num_heads": {"num_heads": 4},
    "dff": {"dff": 40},
    "dropout_rate": {"dropout_rate": 0.5},
    "attention_dropout_rate": {"attention_dropout_rate": 0.5},
    "key_dim": {"key_dim": 6},
    "num_kv_heads": {"num_kv_heads": 1},
    "norm_first": {"norm_first": True},
    "norm": {"norm": "rms"},
    "norm_epsilon": {"norm_epsilon": 0.01},
    "qk_norm": {"qk_norm": True},
    "activation": {"activation": "gelu_tanh"},
    "gated": {"gated": True},
    "use_bias": {"use_bias": False},
    "joint_vocab": {"joint_vocab": False},
    "tied_logits": {"tied_logits": False},
    "logits_bias": {"logits_bias": True},
    "embedding_scale": {"embedding_scale": False},
    "embedding_norm": {"embedding_norm": True},
    "positions": {"positions": "rotary"},
    "max_wavelength": {"max_wavelength": 100.0},
    "max_length": {"max_length": 200},
}
# Fields that are changed together, so that few models have them all.
TOGETHER = {
    "sizes": (
        "source_vocab", "encoder_layers", "d_model", "num_heads", "dff", "dropout_rate",
        "attention_dropout_rate", "key_dim", "num_kv_heads", "max_length",
    ),
    "layers": (
        "decoder_layers", "norm_first", "norm", "norm_epsilon", "qk_norm", "activation", "gated",
        "use_bias", "embedding_norm", "positions", "max_wavelength",
    ),
    "logits": ("target_vocab", "joint_vocab", "tied_logits", "logits_bias", "embedding_scale"),
}  # fmt: skip


def scrambled(**fields):
    """A translator of a model with random weights, biases too."""
    model, rng = Transformer(BASE.replace(**fields)), np.random.default_rng(5)
    for weight in model.trainable_variables:
        weight.assign(weight + rng.normal(scale=0.3, size=weight.shape))
    return Plain(model, tokenizer(), max_source_length=64, languages=("pt", "en"))


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


def test_every_field_has_an_entry():
    assert {*FIELDS} == {field.name for field in dataclasses.fields(TransformerConfig)}
    assert all(fields[field] != getattr(BASE, field) for field, fields in FIELDS.items())
    assert {*FIELDS} == {field for fields in TOGETHER.values() for field in fields}


@pytest.mark.ci
@pytest.mark.parametrize("name", TOGETHER)
def test_a_model_with_it_is_saved_cloned_and_finished(name, tmp_path):
    changed = {}
    for field in TOGETHER[name]:
        changed |= FIELDS[field]
    translator = scrambled(**changed)
    model, expected = translator.model, logits(translator.model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    preset = Translator.from_preset(translator.save_to_preset(tmp_path / "preset")).model
    assert loaded.config == preset.config == BASE.replace(**changed)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    for found in (loaded, preset, clone):
        np.testing.assert_allclose(logits(found), expected, atol=1e-5, rtol=1e-5)
    fast = optimize_for_decoding(model)
    np.testing.assert_allclose(logits(fast), expected, atol=1e-3, rtol=1e-3)


def exported(name, folder, format):
    """A translator with those of the fields that a format has a counterpart of, and its export.

    The others are refused by name.
    """
    fields = [*TOGETHER[name]]
    while True:
        translator = scrambled(**{key: FIELDS[f][key] for f in fields for key in FIELDS[f]})
        try:
            return translator, translator.export(folder, format=format)
        except ExportError as error:
            named = [f for f in fields if any(f"{key}=" in str(error) for key in FIELDS[f])]
            assert named, error
            fields.remove(named[0])


@pytest.mark.ci
@pytest.mark.needs("ctranslate2")
@pytest.mark.parametrize("name", TOGETHER)
def test_ctranslate2_computes_the_same_or_its_export_names_the_field(name, tmp_path):
    import ctranslate2

    translator, path = exported(name, tmp_path / "exported", "ctranslate2")
    engine = ctranslate2.Translator(str(path), compute_type="float32")
    sides = [tokenizer().pieces(side).numpy() for side in ids()]
    pieces = [[[p.decode() for p in row if p][:-1] for row in side] for side in sides]
    found = [log_prob for scored in engine.score_batch(*pieces) for log_prob in scored.log_probs]
    target = ids()[1]
    log_probs = log_softmax(logits(translator.model))
    expected = log_probs[np.arange(len(log_probs)), target[target != 0]]
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.ci
@pytest.mark.parametrize("name", TOGETHER)
def test_a_marian_mt_model_computes_the_same_or_its_export_names_the_field(name, tmp_path):
    """`test_other_formats.py` has transformers itself read such folders."""
    translator, path = exported(name, tmp_path / "exported", "transformers")
    check_marian(path, logits(translator.model))


# What a config does not say: (what is done to a model, what changes no output).
def frozen(model):
    model.get_layer("encoder").trainable = False
    model.get_layer("decoder").layers[0].feed_forward.trainable = False


def with_lora(model):
    dense = model.get_layer("decoder").layers[0].feed_forward.hidden_dense
    dense.enable_lora(2)
    for weight in dense.trainable_weights:
        weight.assign(weight + 0.1)


@pytest.mark.parametrize("change", [frozen, with_lora])
def test_what_a_config_does_not_say_is_saved_too(change, tmp_path):
    translator = scrambled()
    change(translator.model)
    expected = logits(translator.model)
    found = Translator.from_preset(translator.save_to_preset(tmp_path / "preset")).model
    np.testing.assert_allclose(logits(found), expected, atol=1e-5, rtol=1e-5)
    trainable = [[w.trainable for w in each.weights] for each in (found, translator.model)]
    assert trainable[0] == trainable[1] and not all(trainable[0])
    path = translator.export(tmp_path / "exported", format="transformers")
    check_marian(path, expected)


# Models of one's own with an option that a config states once for both sides, or not at all:
# {name: options of the source's embedding, the encoder, the target's embedding, the decoder}.
OWN = {
    "rotary positions in the encoder only": (
        {}, {"relative_positions": layers.RotaryPositions(8)}, {}, {}
    ),
    "an unscaled source": ({"scaled": False}, {}, {}, {}),
    "a source without positions": ({"positions": layers.NoPositions()}, {}, {}, {}),
    "another epsilon of qk_norm": (
        {}, {"qk_norm": layers.LayerNormalization(0.1)}, {},
        {"qk_norm": layers.LayerNormalization(0.01)},
    ),
    "another epsilon of the embedding's norm": (
        {"norm": layers.LayerNormalization(0.1)}, {}, {"norm": layers.LayerNormalization(0.01)}, {}
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [name if "rotary" in name else pytest.param(name, marks=pytest.mark.ci) for name in OWN]
)
def test_what_no_config_states_is_saved_as_it_is_and_refused_by_other_engines(name, tmp_path):
    sizes = {"num_layers": 1, "d_model": 16, "num_heads": 2, "dff": 32}
    of_source, of_encoder, of_target, of_decoder = OWN[name]
    source_ids = keras.Input((None,), dtype="int32", name="source_ids")
    target_ids = keras.Input((None,), dtype="int32", name="target_ids")
    source = layers.PositionalEmbedding(SIZE, 16, **of_source, name="source_embedding")
    target = layers.PositionalEmbedding(SIZE, 16, **of_target, name="target_embedding")
    context = layers.Encoder(**sizes, **of_encoder, name="encoder")(source(source_ids))
    x = layers.Decoder(**sizes, **of_decoder, name="decoder")(target(target_ids), context)
    model = TranslationModel([source_ids, target_ids], target(x, reverse=True))
    translator = Plain(model, tokenizer(), max_source_length=64)
    found = Translator.from_preset(translator.save_to_preset(tmp_path / "preset")).model
    np.testing.assert_allclose(logits(found), logits(model), atol=1e-5, rtol=1e-5)
    for format in ("transformers", "ctranslate2"):
        with pytest.raises(ExportError, match=r"needs a model that Transformer\(config\) made"):
            translator.export(tmp_path / "exported", format=format)


def test_quantised_models_are_refused(tmp_path):
    translator = scrambled()
    dense = translator.model.get_layer("encoder").layers[0].feed_forward.hidden_dense
    dense.quantize("int8")
    with pytest.raises(PresetError, match="neither quantised nor"):
        translator.save_to_preset(tmp_path / "preset")
    for format in ("transformers", "ctranslate2"):
        with pytest.raises(ExportError, match="needs weights that are not quantised"):
            translator.export(tmp_path / "exported", format=format)
    assert not any(tmp_path.iterdir())
