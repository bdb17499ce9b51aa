"""Marian's and transformers' names of a Transformer's weights.

For what writes the formats of both, and for `training/marian`, which reads them.
"""

import numpy as np

from keras_tfmr.precision import to_numpy

_PROJECTIONS = (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o"))
# The names of a layer's arrays: transformers' and Marian's, which ends in W or b, scale or bias.
_LAYER = {
    **{f"{theirs}.{projection}": f"{ours}_{{}}{projection[0]}"
       for theirs, ours in (("self_attn", "self"), ("encoder_attn", "context"))
       for projection in ("q_proj", "k_proj", "v_proj", "out_proj")},
    "self_attn_layer_norm": "self_Wo_ln_{}", "encoder_attn_layer_norm": "context_Wo_ln_{}",
    "fc1": "ffn_{}1", "fc2": "ffn_{}2", "final_layer_norm": "ffn_ffn_ln_{}",
}  # fmt: skip


def transformers_names(encoder_layers, decoder_layers):
    """{name in a MarianMTModel: name in Marian} of the arrays of all layers.

    >>> transformers_names(1, 0)["model.encoder.layers.0.self_attn.out_proj.weight"]
    'encoder_l1_self_Wo'
    """
    names = {}
    for side, count in (("encoder", encoder_layers), ("decoder", decoder_layers)):
        for number in range(count):
            for theirs, ours in _LAYER.items():
                kinds = ("scale", "bias") if "_ln_" in ours else ("W", "b")
                for word, kind in zip(("weight", "bias"), kinds, strict=True):
                    name = f"model.{side}.layers.{number}.{theirs}.{word}"
                    names[name] = f"{side}_l{number + 1}_{ours.format(kind)}"
    return names


def layer_weights(model):
    """Yields the weights of the layers of a `TranslationModel`.

    Args:
        model: One with attention or an SSRU in the decoder, pre-norm or post-norm.

    Yields:
        (Marian's name, weight, axes of the weight that are as wide as the model). Along these, the
        order of Marian's numbers is another one: see `halves`.
    """
    pre = "_pre" if model.config.norm_first else ""  # ends the name of a norm before a sublayer
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, layer in enumerate(stack.layers, 1):
            for name, *about in _of_layer(layer, pre):
                yield f"{side}_l{number}_{name}", *about
        if stack.norm is not None:
            yield from _norm(f"{side}_top_ln_{{}}", stack.norm)


def _of_layer(layer, pre):
    if hasattr(layer, "ssru"):
        ssru = layer.ssru
        yield "rnn_W", ssru.candidate_dense.kernel, (0, 1)
        yield "rnn_Wf", ssru.forget_dense.kernel, (0, 1)
        yield "rnn_bf", ssru.forget_dense.bias, (0,)
        yield from _norm(f"rnn{'' if pre else '_ffn'}_ln_{{}}{pre}", ssru.residual.norm)
    for ours, theirs in (("self_attention", "self"), ("cross_attention", "context")):
        if sublayer := getattr(layer, ours, None):
            for projection, letter in _PROJECTIONS:
                dense = getattr(sublayer.attention, f"{projection}_dense")
                yield from _dense(f"{theirs}_{{}}{letter}", dense, letter == "o")
            yield from _norm(f"{theirs}_Wo_ln_{{}}{pre}", sublayer.residual.norm)
    feed_forward = layer.feed_forward
    yield from _dense("ffn_{}1", feed_forward.hidden_dense, False)
    yield from _dense("ffn_{}2", feed_forward.output_dense, True)
    yield from _norm(f"ffn_ffn_ln_{{}}{pre}", feed_forward.residual.norm)


def _dense(name, dense, writes):
    """A product that reads vectors of the model's width or, if it `writes`, makes them."""
    yield name.format("W"), dense.kernel, (int(writes),)
    yield name.format("b"), dense.bias, (0,) if writes else ()


def _norm(name, norm):
    yield name.format("scale"), norm.gamma, (0,)
    yield name.format("bias"), norm.beta, (0,)


def halves(width):
    """The order of Marian's vectors in ours: all sines of the positions, then all cosines.

    In ours they alternate. Every weight is reordered along the model's width, which changes no
    product and no normalisation. `numpy.argsort` gives the order of ours in Marian's.

    >>> halves(6)
    array([0, 2, 4, 1, 3, 5])
    """
    return np.arange(width).reshape(-1, 2).T.reshape(-1)


def reordered(array, order, axes):
    """An array whose entries along some axes have another order."""
    for axis in axes:
        array = array.take(order, axis)
    return array


def arrays(model):
    """{Marian's name: float32 array} of a `TranslationModel`, matrices `[in, out]`, our ids."""
    config, logits = model.config, model.logits
    order = halves(config.d_model)
    tables = {side: getattr(model, side).embedding.tokens.embeddings
              for side in ("encoder", "decoder")}  # fmt: skip
    if config.joint_vocab:
        weights = [("Wemb", tables["decoder"], (1,))]
    else:
        weights = [(f"{side}_Wemb", table, (1,)) for side, table in tables.items()]
    bias = getattr(logits if config.tied_logits else logits.dense, "bias", None)
    if not config.tied_logits:
        weights.append(("decoder_ff_logit_out_W", logits.dense.kernel, (0,)))
    own = {
        name: reordered(to_numpy(weight), order, axes)
        for name, weight, axes in (*weights, *layer_weights(model))
    }
    none = np.zeros(config.target_vocab, "float32")
    return own | {"decoder_ff_logit_out_b": none if bias is None else to_numpy(bias)}
