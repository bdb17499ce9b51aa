"""The weights of a Transformer under Marian's names, to read and to write them."""

import numpy as np

from keras_tfmr.errors import PresetError
from keras_tfmr.faster.precision import to_numpy

BIAS, LOGITS = "decoder_ff_logit_out_b", "decoder_ff_logit_out_W"
# A logit bias with which the probability of an id is 0.
BANNED = -1e9
_PROJECTIONS = (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o"))
# The names of a layer's arrays: transformers' and Marian's, which ends in W or b, scale or bias.
_LAYER = {
    **{f"{theirs}.{projection}": f"{ours}_{{}}{projection[0]}"
       for theirs, ours in (("self_attn", "self"), ("encoder_attn", "context"))
       for projection in ("q_proj", "k_proj", "v_proj", "out_proj")},
    "self_attn_layer_norm": "self_Wo_ln_{}", "encoder_attn_layer_norm": "context_Wo_ln_{}",
    "fc1": "ffn_{}1", "fc2": "ffn_{}2", "final_layer_norm": "ffn_ffn_ln_{}",
}  # fmt: skip


def transformers_names(config):
    """{name in a MarianMTModel: name in Marian} of a `TransformerConfig`'s weights.

    A shared table can be stored under several names; the first is that of `save_pretrained`.
    """
    sides = ("encoder", "decoder")
    tables = {f"model.{side}.embed_tokens.weight": f"{side}_Wemb" for side in sides}
    if config.joint_vocab:
        tables = dict.fromkeys(("model.shared.weight", *tables), "Wemb")
    names = {**tables, "final_logits_bias": BIAS}
    decoder = tables["model.decoder.embed_tokens.weight"]
    names["lm_head.weight"] = decoder if config.tied_logits else LOGITS
    for side in sides:
        for number in range(getattr(config, f"{side}_layers")):
            for theirs, ours in _LAYER.items():
                kinds = ("scale", "bias") if "_ln_" in ours else ("W", "b")
                for word, kind in zip(("weight", "bias"), kinds, strict=True):
                    name = f"model.{side}.layers.{number}.{theirs}.{word}"
                    names[name] = f"{side}_l{number + 1}_{ours.format(kind)}"
    return names


def turned(name, array):
    """An array as the other of Marian and transformers has it; `name` is Marian's."""
    return np.ascontiguousarray(array if name.endswith("Wemb") else array.T)


def weights(model):
    """Yields what Marian stores of a `TranslationModel`, with attention or an SSRU in the decoder.

    Yields:
        (Marian's name, our variable or None for the bias that logits do not have, the axes that
        are as wide as the model, the axis of subwords, and their side: "source", "target" or None).
        Along axes as wide as the model, the order of Marian's numbers is another one: see `halves`.
    """
    config, logits = model.config, model.logits
    joint, encoder, decoder = config.joint_vocab, model.encoder, model.decoder
    if not joint:
        yield "encoder_Wemb", encoder.embedding.tokens.embeddings, (1,), 0, "source"
    name = "Wemb" if joint else "decoder_Wemb"
    yield name, decoder.embedding.tokens.embeddings, (1,), 0, "target"
    if not config.tied_logits:
        yield LOGITS, logits.dense.kernel, (0,), 1, "target"
    bias = getattr(logits if config.tied_logits else logits.dense, "bias", None)
    yield BIAS, bias, (), 0, "target"
    pre = "_pre" if config.norm_first else ""  # ends the name of a norm before a sublayer
    for side, stack in (("encoder", encoder), ("decoder", decoder)):
        for number, layer in enumerate(stack.layers, 1):
            for name, variable, wide in _of_layer(layer, pre):
                yield f"{side}_l{number}_{name}", variable, wide, 0, None
        if stack.norm is not None:
            for about in _norm(f"{side}_top_ln_{{}}", stack.norm):
                yield *about, 0, None


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


def _reordered(array, order, axes):
    for axis in axes:
        array = array.take(order, axis)
    return array


def arrays_of(model, orders=None):
    """{Marian's name: float32 array} of a `TranslationModel`, matrices `[in, out]`.

    Args:
        orders: {"source", "target": our ids in the order to write}; our own order if left out.
    """
    order, arrays = halves(model.config.d_model), {}
    for name, variable, wide, axis, side in weights(model):
        if variable is None:
            array = np.zeros(model.config.target_vocab, "float32")
        else:
            array = _reordered(to_numpy(variable), order, wide)
        arrays[name] = array.take(orders[side], axis) if side and orders else array
    return arrays


def assign(model, arrays, vocabularies, banned=()):
    """Sets every weight of a `TranslationModel`.

    Args:
        model: The model.
        arrays: {Marian's name: array}, matrices `[in, out]`, in the order of the published ids.
        vocabularies: {"source", "target": `Vocabulary`}.
        banned: Published target ids that are never to be produced.

    Raises:
        PresetError: If an array is missing, has another shape or type, or does not belong to the
            model.
    """
    left, order = dict(arrays), np.argsort(halves(model.config.d_model))
    for name, variable, wide, axis, side in weights(model):
        array = left.pop(name, None)
        if array is None or array.dtype.kind != "f":
            raise PresetError(f"the model has no array {name} of floats")
        array = array.reshape(-1) if len(variable.shape) == 1 else array
        if side and array.ndim == len(variable.shape):
            array = _of_our_ids(name, array, axis, vocabularies[side], banned)
        if array.shape != tuple(variable.shape):
            raise PresetError(
                f"{name} has shape {array.shape} in our layout; expected {tuple(variable.shape)}"
            )
        variable.assign(_reordered(array, order, wide))
    if left:
        names = ", ".join(sorted(left)[:5])
        raise PresetError(
            f"the model has {len(left)} arrays that no Marian Transformer has: {names}"
        )


def _of_our_ids(name, array, axis, vocabulary, banned):
    """An array with the entries of our ids along an axis: zeros for new ones, or a banned bias."""
    size, order = len(vocabulary.pieces), vocabulary.order
    if array.shape[axis] < size:
        raise PresetError(f"{name} has {array.shape[axis]} rows, the vocabulary {size} pieces")
    absent = np.expand_dims(order < 0, tuple(set(range(array.ndim)) - {axis}))
    if name != BIAS:
        return np.where(absent, np.float32(0), array.take(order, axis))
    absent |= np.isin(order, [*banned])
    absent[2] = True  # the start id, which can have the row of another id
    return np.where(absent, np.float32(BANNED), array.take(order, axis))
