"""Models that others wrote, with their weights: the same logits, the same greedy tokens.

transformers made the files in tests/peers; the history has the script: `git log -p --
tests/peers/make.py`. For each peer there is a class of ours, the fields of its config, and a
function that assigns the weights of a state dict, `{name: array}`, whose kernels are `[out, in]`
unless a peer stores them otherwise.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import to_numpy
from keras import ops

from keras_tfmr import LanguageModel, TokenClassifier, TransformerConfig, TranslationModel
from keras_tfmr.decoding import greedy

START = 2
PARTS = ("query_dense", "key_dense", "value_dense", "output_dense")
WITHOUT_BIASES = dict(
    norm_first=True, norm="rms", gated=True, use_bias=False, tied_logits=False, logits_bias=False
)


def _dense(layer, w, name, transposed=True):
    kernel = w[f"{name}.weight"]
    layer.kernel.assign(kernel.T if transposed else kernel)
    if layer.bias is not None:
        layer.bias.assign(w[f"{name}.bias"])


def _attention(attention, w, names):
    for part, name in zip(PARTS, names, strict=True):
        _dense(getattr(attention, part), w, name)


def _norm(norm, w, name):
    weights = [w[f"{name}.{kind}"] for kind in ("weight", "bias") if f"{name}.{kind}" in w]
    for variable, value in zip(norm.weights, weights, strict=True):
        variable.assign(value)


def _feed_forward(feed_forward, w, prefix, **names):
    for part, name in names.items():
        _dense(getattr(feed_forward, f"{part}_dense"), w, f"{prefix}.{name}")


def llama(model, w):
    """Rotary positions, grouped queries, RMS normalisation, SwiGLU, no biases."""
    model.decoder.embedding.tokens.embeddings.assign(w["model.embed_tokens.weight"])
    for i, layer in enumerate(model.decoder.layers):
        name, attention, feed_forward = (
            f"model.layers.{i}",
            layer.self_attention,
            layer.feed_forward,
        )
        _attention(attention.attention, w, [f"{name}.self_attn.{p}_proj" for p in "qkvo"])
        _norm(attention.residual.norm, w, f"{name}.input_layernorm")
        _feed_forward(
            feed_forward, w, f"{name}.mlp", gate="gate_proj", hidden="up_proj", output="down_proj"
        )
        _norm(feed_forward.residual.norm, w, f"{name}.post_attention_layernorm")
    _norm(model.decoder.norm, w, "model.norm")
    _dense(model.logits.dense, w, "lm_head")


def gpt2(model, w):
    """Learned positions, tanh GELU, pre-norm, tied logits; kernels are `[in, out]`."""
    embedding = model.decoder.embedding
    embedding.tokens.embeddings.assign(w["transformer.wte.weight"])
    embedding.positions.embedding.embeddings.assign(w["transformer.wpe.weight"])
    for i, layer in enumerate(model.decoder.layers):
        name, mine, feed_forward = f"transformer.h.{i}", layer.self_attention, layer.feed_forward
        kernels = np.split(w[f"{name}.attn.c_attn.weight"], 3, axis=1)
        biases = np.split(w[f"{name}.attn.c_attn.bias"], 3)
        for part, kernel, bias in zip(PARTS[:3], kernels, biases, strict=True):
            dense = getattr(mine.attention, part)
            dense.kernel.assign(kernel)
            dense.bias.assign(bias)
        _dense(mine.attention.output_dense, w, f"{name}.attn.c_proj", transposed=False)
        _dense(feed_forward.hidden_dense, w, f"{name}.mlp.c_fc", transposed=False)
        _dense(feed_forward.output_dense, w, f"{name}.mlp.c_proj", transposed=False)
        _norm(mine.residual.norm, w, f"{name}.ln_1")
        _norm(feed_forward.residual.norm, w, f"{name}.ln_2")
    _norm(model.decoder.norm, w, "transformer.ln_f")


def bert(model, w):
    """An encoder: post-norm, learned positions and a norm of the embedding, exact GELU."""
    embedding = model.encoder.embedding
    embedding.tokens.embeddings.assign(w["embeddings.word_embeddings.weight"])
    # The type of a first sentence is the same vector everywhere.
    positions = w["embeddings.position_embeddings.weight"]
    positions = positions + w["embeddings.token_type_embeddings.weight"][0]
    embedding.positions.embedding.embeddings.assign(positions)
    _norm(embedding.norm, w, "embeddings.LayerNorm")
    for i, layer in enumerate(model.encoder.layers):
        name, attention, feed_forward = (
            f"encoder.layer.{i}",
            layer.self_attention,
            layer.feed_forward,
        )
        names = [f"{name}.attention.self.{p}" for p in ("query", "key", "value")]
        _attention(attention.attention, w, [*names, f"{name}.attention.output.dense"])
        _norm(attention.residual.norm, w, f"{name}.attention.output.LayerNorm")
        _feed_forward(feed_forward, w, name, hidden="intermediate.dense", output="output.dense")
        _norm(feed_forward.residual.norm, w, f"{name}.output.LayerNorm")


def t5(model, w):
    """Relative bias, no biases, RMS normalisation, gated GELU, unscaled attention (version 1.1)."""
    model.encoder.embedding.tokens.embeddings.assign(w["shared.weight"])
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        stack.relative_positions.table.assign(w[bias])
        for i, layer in enumerate(stack.layers):
            name = f"{side}.block.{i}.layer"
            sublayers = {"SelfAttention": layer.self_attention}
            if side == "decoder":
                sublayers["EncDecAttention"] = layer.cross_attention
            for n, (kind, sublayer) in enumerate(sublayers.items()):
                attention = sublayer.attention
                _attention(attention, w, [f"{name}.{n}.{kind}.{p}" for p in "qkvo"])
                # Undoes our division by √key_dim.
                query = attention.query_dense.kernel
                query.assign(query * np.sqrt(attention.key_dim))
                _norm(sublayer.residual.norm, w, f"{name}.{n}.layer_norm")
            last, feed_forward = f"{name}.{len(sublayers)}", layer.feed_forward
            _feed_forward(
                feed_forward, w, f"{last}.DenseReluDense", gate="wi_0", hidden="wi_1", output="wo"
            )
            _norm(feed_forward.residual.norm, w, f"{last}.layer_norm")
        _norm(stack.norm, w, f"{side}.final_layer_norm")
    _dense(model.logits.dense, w, "lm_head")


PEERS = {
    llama: (
        LanguageModel,
        dict(WITHOUT_BIASES, norm_epsilon=1e-5, activation="silu", positions="rotary"),
    ),
    gpt2: (
        LanguageModel,
        dict(
            norm_first=True, norm_epsilon=1e-5, activation="gelu_tanh", positions="learned",
            max_length=64,
        ),
    ),
    bert: (
        TokenClassifier,
        dict(
            norm_epsilon=1e-12, activation="gelu", positions="learned", max_length=64,
            embedding_norm=True,
        ),
    ),
    t5: (
        TranslationModel,
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
    model = kind(config, 2) if kind is TokenClassifier else kind(config)
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
    run = model.encoder if name == "bert" else model
    output = run([source, fixture["target"]] if name == "t5" else source)
    # Beside the numbers of float64, where the peer's own in float32 may be further away than this.
    atol = max(1e-4, 2 * float(fixture["rounding"]))
    np.testing.assert_allclose(to_numpy(output), fixture["output"], atol=atol, rtol=1e-4)
    if name == "bert":
        return
    expected = fixture["greedy"]
    rows, length = expected.shape
    step, state = model.start(source if name == "t5" else rows, max_length=length + 1)
    found = greedy(
        step, state, bos_ids=ops.full((rows,), START, "int32"), eos_id=1,
        max_length=length + 1, min_length=length + 1, banned_ids=(0,),
    )  # fmt: skip
    np.testing.assert_array_equal(to_numpy(found.ids)[:, 0, :length], expected)
