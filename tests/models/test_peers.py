"""Models that others wrote, with their weights: the same logits, the same greedy tokens.

transformers made the files in tests/peers; the history has the script: `git log -p --
tests/peers/make.py`. For each peer there is a class of ours, the fields of its config, and a
function that assigns the weights of a state dict, `{name: array}`, whose kernels are `[out, in]`
unless a peer stores them otherwise.
"""

import json
import operator
from pathlib import Path

import keras
import numpy as np
import pytest
from decoding_toys import decode
from helpers import to_numpy
from keras import ops

from keras_tfmr import (
    Transformer,
    TransformerClassifier,
    TransformerConfig,
    TransformerLanguageModel,
)

START = 2
PROJECTIONS = [f"{part}_dense" for part in ("query", "key", "value", "output")]
SELF = [f"self_attention.attention.{part}" for part in PROJECTIONS]
SELF.append("self_attention.residual.norm")
CROSS = [path.replace("self_attention", "cross_attention") for path in SELF]
FEED = [f"feed_forward.{part}" for part in ("hidden_dense", "output_dense", "residual.norm")]
GATED = ["feed_forward.gate_dense", *FEED]
WITHOUT_BIASES = dict(
    norm_first=True, norm="rms", gated=True, use_bias=False, tied_logits=False, logits_bias=False
)


def assign(part, w, name):
    """Weights of a dense layer or of a norm."""
    for variable, kind in zip(part.weights, ("weight", "bias"), strict=False):
        variable.assign(w[f"{name}.{kind}"].T)


def assign_all(layer, w, prefix, paths, names):
    """Weights of the parts of a layer, from names in the order of their paths."""
    for path, name in zip(paths, names.split(), strict=True):
        assign(operator.attrgetter(path)(layer), w, f"{prefix}.{name}")


def llama(model, w):
    """Rotary positions, grouped queries, RMS normalisation, SwiGLU, no biases."""
    decoder = model.get_layer("decoder")
    model.get_layer("embedding").tokens.embeddings.assign(w["model.embed_tokens.weight"])
    names = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj input_layernorm "
    names += "mlp.gate_proj mlp.up_proj mlp.down_proj post_attention_layernorm"
    for i, layer in enumerate(decoder.layers):
        assign_all(layer, w, f"model.layers.{i}", [*SELF, *GATED], names)
    assign(decoder.norm, w, "model.norm")
    assign(model.get_layer("logits").dense, w, "lm_head")


def gpt2(model, w):
    """Learned positions, tanh GELU, pre-norm, tied logits; kernels are `[in, out]`."""
    embedding, decoder = model.get_layer("embedding"), model.get_layer("decoder")
    embedding.tokens.embeddings.assign(w["transformer.wte.weight"])
    embedding.positions.embedding.embeddings.assign(w["transformer.wpe.weight"])
    w = {name: value.T for name, value in w.items()}
    for i, layer in enumerate(decoder.layers):
        prefix = f"transformer.h.{i}"
        for kind in ("weight", "bias"):
            parts = np.split(w[f"{prefix}.attn.c_attn.{kind}"], 3)
            w |= {f"{prefix}.{name}.{kind}": part for name, part in zip("qkv", parts, strict=True)}
        names = "q k v attn.c_proj ln_1 mlp.c_fc mlp.c_proj ln_2"
        assign_all(layer, w, prefix, [*SELF, *FEED], names)
    assign(decoder.norm, w, "transformer.ln_f")


def bert(model, w):
    """An encoder: post-norm, learned positions and a norm of the embedding, exact GELU."""
    embedding = model.get_layer("embedding")
    embedding.tokens.embeddings.assign(w["embeddings.word_embeddings.weight"])
    # The type of a first sentence is the same vector everywhere.
    positions = w["embeddings.position_embeddings.weight"]
    positions = positions + w["embeddings.token_type_embeddings.weight"][0]
    embedding.positions.embedding.embeddings.assign(positions)
    assign(embedding.norm, w, "embeddings.LayerNorm")
    names = "attention.self.query attention.self.key attention.self.value attention.output.dense "
    names += "attention.output.LayerNorm intermediate.dense output.dense output.LayerNorm"
    for i, layer in enumerate(model.get_layer("encoder").layers):
        assign_all(layer, w, f"encoder.layer.{i}", [*SELF, *FEED], names)


def t5(model, w):
    """Relative bias, no biases, RMS normalisation, gated GELU, unscaled attention (version 1.1)."""
    model.get_layer("embedding").tokens.embeddings.assign(w["shared.weight"])
    for side in ("encoder", "decoder"):
        stack = model.get_layer(side)
        bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        stack.relative_positions.table.assign(w[bias])
        sublayers = {"SelfAttention": SELF, "EncDecAttention": CROSS}
        for i, layer in enumerate(stack.layers):
            prefix, last = f"{side}.block.{i}.layer", 1 if side == "encoder" else 2
            for n, (kind, paths) in enumerate([*sublayers.items()][:last]):
                names = f"{kind}.q {kind}.k {kind}.v {kind}.o layer_norm"
                assign_all(layer, w, f"{prefix}.{n}", paths, names)
                attention = operator.attrgetter(paths[0].rpartition(".")[0])(layer)
                query = attention.query_dense.kernel  # undoes our division by √key_dim
                query.assign(query * np.sqrt(attention.key_dim))
            names = " ".join(f"DenseReluDense.{part}" for part in ("wi_0", "wi_1", "wo"))
            assign_all(layer, w, f"{prefix}.{last}", GATED, f"{names} layer_norm")
        assign(stack.norm, w, f"{side}.final_layer_norm")
    assign(model.get_layer("logits").dense, w, "lm_head")


PEERS = {
    llama: (
        TransformerLanguageModel,
        dict(WITHOUT_BIASES, norm_epsilon=1e-5, activation="silu", positions="rotary"),
    ),
    gpt2: (TransformerLanguageModel, dict(
        norm_first=True, norm_epsilon=1e-5, activation="gelu_tanh", positions="learned",
        max_length=64,
    )),
    bert: (TransformerClassifier, dict(
        norm_epsilon=1e-12, activation="gelu", positions="learned", max_length=64,
        embedding_norm=True,
    )),
    t5: (
        Transformer,
        dict(WITHOUT_BIASES, norm_epsilon=1e-6, activation="gelu_tanh", positions="relative"),
    ),
}  # fmt: skip


def with_weights_of(peer, sizes, weights):
    """Our model with the weights of the peer, one of `PEERS`, for the sizes of a fixture."""
    kind, fields = PEERS[peer]
    config = TransformerConfig(
        source_vocab=sizes["vocab"], target_vocab=sizes["vocab"], encoder_layers=sizes["layers"],
        decoder_layers=sizes["layers"], d_model=sizes["d_model"], num_heads=sizes["heads"],
        num_kv_heads=sizes["kv_heads"] if peer is llama else None, dff=sizes["dff"],
        embedding_scale=False, dropout_rate=0.0, **fields,
    )  # fmt: skip
    model = kind(config, 2) if peer is bert else kind(config)
    peer(model, weights)
    return model


@pytest.mark.parametrize("peer", PEERS)
def test_outputs_and_greedy_tokens(peer):
    """Those of the full pass, and of the cached step."""
    with np.load(Path(__file__).parents[1] / "peers" / f"{peer.__name__}.npz") as file:
        fixture = dict(file)
    weights = {k.removeprefix("weight:"): v for k, v in fixture.items() if k.startswith("weight:")}
    model = with_weights_of(peer, json.loads(str(fixture["sizes"])), weights)
    source, name = fixture["source"], peer.__name__
    run = model
    if peer is bert:
        run = keras.Model(model.inputs[0], model.get_layer("encoder").output)
    output = run([source, fixture["target"]] if name == "t5" else source)
    # Beside the numbers of float64, where the peer's own in float32 may be further away than this.
    atol = max(1e-4, 2 * float(fixture["rounding"]))
    np.testing.assert_allclose(to_numpy(output), fixture["output"], atol=atol, rtol=1e-4)
    if name == "bert":
        return
    expected = fixture["greedy"][:, :4]
    rows, length = expected.shape
    step, state = model.start(source if name == "t5" else rows, max_length=length + 1)
    result = decode(
        step, state, bos_ids=ops.full((rows,), START, "int32"), eos_id=1,
        max_length=length + 1, min_length=length + 1, banned_ids=(0,),
    )  # fmt: skip
    np.testing.assert_array_equal(to_numpy(result.ids)[:, 0, :length], expected)
