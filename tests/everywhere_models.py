"""Models with every layer, option and field, and with what was changed in them afterwards."""

import inspect
import typing
import warnings
from functools import partial

import keras
from helpers import OPTIONS, random, randomize
from own_models import COMPOSED, SIZES, TwoParts
from text_models import tokenizer

from keras_tfmr import TransformerConfig, layers, recurrent
from keras_tfmr.models import (
    MeanOverTokens,
    Transformer,
    TransformerClassifier,
    TransformerLanguageModel,
    TranslationModel,
)

# Arguments that a layer needs. {name: the value at first}
NEEDED = {
    "num_layers": 2, "d_model": 16, "num_heads": 2, "dff": 32, "key_dim": 8, "vocab_size": 20,
    "units": 20, "max_length": 9, "bidirectional": False, "rate": 0.1, "alignment_units": 6,
    "alignment_layers": 1, "context_layers": 1, "width": 6, "hops": 1, "max_facts": 4,
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
    "epsilon": 0.01, "seed": 3, "alignment_units": 7, "alignment_layers": 2, "context_layers": 2,
    "kernel_size": 5, "width": 8, "hops": 2, "max_facts": 3, "position_encoding": False,
    "go_backwards": True, "return_sequences": True,
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
RECURRENT = (
    recurrent.GRU, recurrent.LSTMN, recurrent.BidirectionalEncoder, recurrent.ConvolutionStack,
)  # fmt: skip
DECODERS = recurrent.AlignedDecoder, recurrent.ConvolutionalDecoder
MEMORIES = recurrent.AdjacentMemories, recurrent.LayerwiseMemories
PLACED = {
    layers.PositionalEmbedding, layers.LMHead, *IN_THE_SOURCE, *WITH_CONTEXT, *IN_THE_TARGET,
    *POSITIONS, *RELATIVE, *RECURRENT, *DECODERS, *MEMORIES, recurrent.GRUEncoder,
    recurrent.ConvolutionalEncoder, recurrent.SummaryDecoder, recurrent.Maxout,
}  # fmt: skip
INSIDE = {
    layers.MultiHeadAttention, layers.PostNormResidual, layers.PreNormResidual,
    recurrent.GRUCell, recurrent.AdditiveAttention, recurrent.SentenceEmbedding,
}  # fmt: skip

SIZE = tokenizer().vocab_size
BASE = TransformerConfig(
    source_vocab=SIZE, target_vocab=SIZE, encoder_layers=1, decoder_layers=1, d_model=16,
    num_heads=2, dff=32,
)  # fmt: skip


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


def make(cls, **given):
    """A layer with another value of all its options."""
    options = {name: OTHERS[name] for name in options_of(cls) - {"name", *ALONE}}
    for name in ("positions", "relative_positions"):
        if name in options:  # a layer for each
            options[name] = type(OTHERS[name]).from_config(OTHERS[name].get_config())
    return cls(**{**options, **given})


def config_of(name):
    """A config with the fields of a kind; two vocabularies have sizes that no tokenizer has."""
    config = BASE.replace(**OPTIONS[name])
    return config if config.joint_vocab else config.replace(
        source_vocab=SIZE + 9, target_vocab=SIZE + 5
    )  # fmt: skip


def ids(name):
    return keras.Input((None,), dtype="int32", name=f"{name}_ids")


def of_all_layers():
    source_ids, target_ids = ids("source"), ids("target")
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


def of_recurrent_layers():
    source_ids, facts = ids("source"), keras.Input((None, None), dtype="int32", name="facts")
    x = keras.layers.Embedding(20, 6, mask_zero=True)(source_ids)
    for cls in RECURRENT:
        x = make(cls)(x)
    annotations = make(recurrent.ConvolutionalEncoder)(x)
    for cls in DECODERS:
        x = make(cls)(x, annotations)
    x = make(recurrent.SummaryDecoder)(x, make(recurrent.GRUEncoder)(annotations))
    x = MeanOverTokens()(make(recurrent.Maxout)(x))
    return keras.Model([source_ids, facts], [x, *(make(c)(facts, source_ids) for c in MEMORIES)])


def of_two_sides():
    """A model with options that a config states once for both sides, or not at all."""
    source_ids, target_ids = ids("source"), ids("target")
    source = layers.PositionalEmbedding(
        SIZE, 16, scaled=False, positions=layers.NoPositions(), norm=layers.LayerNormalization(0.1)
    )
    target = layers.PositionalEmbedding(SIZE, 16, norm=layers.LayerNormalization(0.01))
    encoder = layers.Encoder(
        **SIZES, qk_norm=layers.LayerNormalization(0.1),
        relative_positions=layers.RotaryPositions(8), name="encoder",
    )  # fmt: skip
    decoder = layers.Decoder(**SIZES, qk_norm=layers.LayerNormalization(0.01), name="decoder")
    x = decoder(target(target_ids), encoder(source(source_ids)))
    return TranslationModel([source_ids, target_ids], target(x, reverse=True))


def with_lora():
    model = Transformer(BASE)
    model.get_layer("decoder").layers[0].feed_forward.hidden_dense.enable_lora(2)
    return model


def of_parts():
    """Between our layers, models in models and a layer whose parts Keras names."""
    vectors = keras.Input((None, 16))
    places = keras.ops.cast(keras.layers.Dense(1)(vectors) > 0, "int32")
    functional = keras.Model(vectors, keras.layers.Embedding(2, 16)(places[..., 0]))
    sequential = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(16)])
    nested = keras.Sequential([sequential, keras.layers.LayerNormalization()])
    source_ids, target_ids = ids("source"), ids("target")
    embedding = layers.PositionalEmbedding(SIZE, 16, mask_zero=False)
    context = layers.Encoder(**SIZES)(functional(nested(embedding(source_ids))))
    x = TwoParts()(embedding(target_ids))
    return TranslationModel([source_ids, target_ids], layers.LMHead(SIZE)(
        layers.Decoder(**SIZES)(x, context)
    ))  # fmt: skip


def sub_model(name):
    """One of several whose layers have the same names."""
    inputs = keras.Input((None, 16))
    x = keras.layers.Dense(16, name="same")(layers.Encoder(**SIZES, name="stack")(inputs))
    return keras.Model(inputs, x, name=name)


def combined(kind):
    source_ids, target_ids = ids("source"), ids("target")
    context = sub_model("first")(layers.PositionalEmbedding(20, 16, mask_zero=False)(source_ids))
    context = sub_model("second")(context)
    dense = [keras.layers.Dense(16), keras.layers.Dense(16)]
    context = keras.Sequential(dense, name="sequential")(context)
    x = layers.PositionalEmbedding(20, 16, logits_bias=True)(target_ids)
    x = layers.Decoder(**SIZES, name="decoder")(x, context)
    return kind([source_ids, target_ids], layers.LMHead(20)(x))


def frozen_in_parts(kind):
    model = combined(kind)
    model.get_layer("sequential").layers[0].trainable = False
    model.get_layer("first").get_layer("stack").layers[0].feed_forward.trainable = False
    model.get_layer("second").trainable = False
    decoder = model.get_layer("decoder")
    decoder.trainable = False
    decoder.layers[0].self_attention.residual.norm.trainable = True
    decoder.layers[0].cross_attention.attention.output_dense.trainable = True
    return model


def changed_in_parts(kind):
    """One of two sub-models in int8; LoRA, also of what is quantised; one LoRA frozen."""
    model = combined(kind)
    second, decoder = model.get_layer("second"), model.get_layer("decoder")
    quantize(second)
    for layer in (decoder.layers[0], second.get_layer("stack").layers[0]):
        layer.feed_forward.hidden_dense.enable_lora(2, lora_alpha=3)
        layer.self_attention.attention.output_dense.enable_lora(1)
        layer.self_attention.trainable = False
    return model


def quantize(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras names each layer with nothing to quantise
        model.quantize("int8")
    return model


def rnnsearch():
    config = recurrent.RNNSearchConfig.preset("tiny", source_vocab=20, target_vocab=20)
    with recurrent.dtype_policy("mixed_bfloat16"):
        return recurrent.RNNSearchModel(config)


def changed_rnnsearch():
    model = rnnsearch()
    model.encoder.forward_gru.cell.trainable = False
    model.decoder.word_dense.enable_lora(2)
    model.source_embedding.trainable = False
    return model


def of_policy(kind, policy, **fields):
    config = kind.config_class.preset("tiny", source_vocab=20, target_vocab=20, **fields)
    with recurrent.dtype_policy(policy):
        return kind(config)


def memory_network(**fields):
    return recurrent.MemoryNetwork(recurrent.MemoryNetworkConfig(20, 8, **fields))


def lstmn():
    return recurrent.LSTMNLanguageModel(recurrent.LSTMNConfig(20, 8, 8))


MAKERS = {
    "all layers": of_all_layers, "recurrent layers": of_recurrent_layers,
    "two sides": of_two_sides, "LoRA": with_lora, "parts": of_parts,
    **{name: partial(Transformer, config_of(name)) for name in OPTIONS},
    **{f"{name}, a language model": partial(TransformerLanguageModel, config_of(name))
       for name in ("modern", "alibi")},
    "classifier": partial(TransformerClassifier, BASE, 3), **COMPOSED,
    "frozen": partial(frozen_in_parts, TranslationModel),
    "changed": partial(changed_in_parts, TranslationModel),
    "frozen, of Keras": partial(frozen_in_parts, keras.Model),
    "changed, of Keras": partial(changed_in_parts, keras.Model),
    "quantised": lambda: quantize(Transformer(BASE)),
    "bfloat16": partial(Transformer, BASE, dtype="mixed_bfloat16"),
    "float16": partial(TransformerClassifier, BASE, 3, dtype="mixed_float16"),
    "rnnsearch": changed_rnnsearch, "rnnsearch, quantised": lambda: quantize(rnnsearch()),
    "seq2seq": partial(of_policy, recurrent.Seq2SeqModel, "float32", joint_vocab=False),
    "convolutional": partial(of_policy, recurrent.ConvolutionalModel, "mixed_float16"),
    "lstmn": lstmn, "memory": memory_network, "layerwise": partial(memory_network, layerwise=True),
}  # fmt: skip


def model_of(name):
    """One of them, with random weights."""
    model = MAKERS[name]()
    randomize(model)
    for weight in model.weights:
        if "lora" in weight.name:  # frozen too
            weight.assign(random(*weight.shape, scale=0.1))
    return model
