"""The weights of a Transformer under the names that they have in a MarianMTModel."""

from typing import Any, NamedTuple

import keras
import numpy as np

from keras_tfmr.models.transformer import embeddings_of

BIAS = "final_logits_bias"
BANNED = -1e9  # a bias of logits with which the probability of an id is 0


class MarianWeight(NamedTuple):
    """A weight of a MarianMTModel, and its counterpart here.

    Fields:
        name: Its name, or the one that is written of several for a shared table.
        variable: Ours; None for the bias that our logits do not have.
        is_kernel: Whether it is a matrix `[out, in]` there, and `[in, out]` here.
        wide: The axis there that is as wide as the model; None if there is none.
        side: "source" or "target" if its first axis there is that of the subwords, else None.
        aliases: Further names.
    """

    name: str
    variable: Any
    is_kernel: bool = False
    wide: int | None = None
    side: str | None = None
    aliases: tuple[str, ...] = ()


def weights_of(model: keras.Model) -> list[MarianWeight]:
    """All weights of a post-norm `TranslationModel` with sinusoidal positions."""
    config, head = model.config, "lm_head.weight"
    source, target = (f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
    of_source, of_target = embeddings_of(model)
    table = of_target.tokens.embeddings
    tied = (head,) if config.tied_logits else ()
    if config.joint_vocab:
        shared = "model.shared.weight"
        found = [MarianWeight(shared, table, False, 1, "target", (source, target, *tied))]
    else:
        found = [
            MarianWeight(source, of_source.tokens.embeddings, False, 1, "source"),
            MarianWeight(target, table, False, 1, "target", tied),
        ]
    if config.tied_logits:
        bias = of_target.bias if config.logits_bias else None
    else:
        dense = model.get_layer("logits").dense
        bias = dense.bias
        found.append(MarianWeight(head, dense.kernel, True, 1, "target"))
    found.append(MarianWeight(BIAS, bias, side="target"))
    for side in ("encoder", "decoder"):
        for number, layer in enumerate(model.get_layer(side).layers):
            name = f"model.{side}.layers.{number}"
            found += _of_attention(f"{name}.self_attn", layer.self_attention)
            if side == "decoder":
                found += _of_attention(f"{name}.encoder_attn", layer.cross_attention)
            found += _reading(f"{name}.fc1", layer.feed_forward.hidden_dense)
            found += _writing(f"{name}.fc2", layer.feed_forward.output_dense)
            found += _norm(f"{name}.final_layer_norm", layer.feed_forward.residual.norm)
    return found


def _of_attention(name, sublayer):
    attention = sublayer.attention
    return [
        *_reading(f"{name}.q_proj", attention.query_dense),
        *_reading(f"{name}.k_proj", attention.key_dense),
        *_reading(f"{name}.v_proj", attention.value_dense),
        *_writing(f"{name}.out_proj", attention.output_dense),
        *_norm(f"{name}_layer_norm", sublayer.residual.norm),
    ]


def _reading(name, dense):
    """A product that reads vectors of the model's width."""
    return [
        MarianWeight(f"{name}.weight", dense.kernel, True, 1),
        MarianWeight(f"{name}.bias", dense.bias),
    ]


def _writing(name, dense):
    """A product that makes vectors of the model's width."""
    kernel = MarianWeight(f"{name}.weight", dense.kernel, True, 0)
    return [kernel, MarianWeight(f"{name}.bias", dense.bias, wide=0)]


def _norm(name, norm):
    weight = MarianWeight(f"{name}.weight", norm.gamma, wide=0)
    return [weight, MarianWeight(f"{name}.bias", norm.beta, wide=0)]


def halves(width: int) -> np.ndarray:
    """The order of a MarianMTModel's vectors in ours: all sines of the positions, then all cosines.

    In ours they alternate. Every weight is reordered along the model's width, which changes no
    product and no normalisation. `numpy.argsort` gives the order of ours in theirs.

    >>> halves(6)
    array([0, 2, 4, 1, 3, 5])
    """
    return np.arange(width).reshape(-1, 2).T.reshape(-1)
