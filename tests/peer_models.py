"""Models of another library and ours with the same weights: how the weights map.

Each peer is described by a small class: the config of ours, our model, and where each of its
weights comes from. The weights are those of a state dict, `{name: array}`, with kernels `[out, in]`
unless a peer stores them the other way.
"""

import numpy as np

from keras_tfmr import LanguageModel, TokenClassifier, TransformerConfig, TranslationModel


def _dense(layer, kernel, bias=None):
    layer.kernel.assign(kernel)
    if layer.bias is not None:
        layer.bias.assign(bias)


def _attention(attention, weights, names, scale=1.0):
    """`names`: the four projections; `scale` undoes our division by √key_dim, if there is none."""
    parts = ("query_dense", "key_dense", "value_dense", "output_dense")
    for part, name in zip(parts, names, strict=True):
        kernel = weights[f"{name}.weight"].T
        if part == "query_dense":
            kernel = kernel * scale
        _dense(getattr(attention, part), kernel, weights.get(f"{name}.bias"))


class Llama:
    """Rotary positions, grouped queries, RMS normalisation, SwiGLU, no biases."""

    def __init__(self, sizes):
        self.sizes = sizes

    def model(self):
        s = self.sizes
        return LanguageModel(
            TransformerConfig(
                source_vocab=s["vocab"],
                target_vocab=s["vocab"],
                decoder_layers=s["layers"],
                d_model=s["d_model"],
                num_heads=s["heads"],
                num_kv_heads=s["kv_heads"],
                dff=s["dff"],
                norm_first=True,
                norm="rms",
                norm_epsilon=1e-5,
                gated=True,
                activation="silu",
                use_bias=False,
                positions="rotary",
                embedding_scale=False,
                tied_logits=False,
                logits_bias=False,
                dropout_rate=0.0,
            )
        )

    def load(self, model, w):
        model.decoder.embedding.tokens.embeddings.assign(w["model.embed_tokens.weight"])
        for i, layer in enumerate(model.decoder.layers):
            name = f"model.layers.{i}"
            attention = layer.self_attention
            names = [f"{name}.self_attn.{p}_proj" for p in "qkvo"]
            _attention(attention.attention, w, names)
            attention.residual.norm.scale.assign(w[f"{name}.input_layernorm.weight"])
            feed_forward = layer.feed_forward
            _dense(feed_forward.gate_dense, w[f"{name}.mlp.gate_proj.weight"].T)
            _dense(feed_forward.hidden_dense, w[f"{name}.mlp.up_proj.weight"].T)
            _dense(feed_forward.output_dense, w[f"{name}.mlp.down_proj.weight"].T)
            feed_forward.residual.norm.scale.assign(w[f"{name}.post_attention_layernorm.weight"])
        model.decoder.norm.scale.assign(w["model.norm.weight"])
        _dense(model.logits.dense, w["lm_head.weight"].T)


class GPT2:
    """Learned positions, tanh GELU, pre-norm, tied logits; kernels are `[in, out]`."""

    def __init__(self, sizes):
        self.sizes = sizes

    def model(self):
        s = self.sizes
        return LanguageModel(
            TransformerConfig(
                source_vocab=s["vocab"],
                target_vocab=s["vocab"],
                decoder_layers=s["layers"],
                d_model=s["d_model"],
                num_heads=s["heads"],
                dff=s["dff"],
                norm_first=True,
                norm_epsilon=1e-5,
                activation="gelu_tanh",
                positions="learned",
                max_length=64,
                embedding_scale=False,
                dropout_rate=0.0,
            )
        )

    def load(self, model, w):
        embedding = model.decoder.embedding
        embedding.tokens.embeddings.assign(w["transformer.wte.weight"])
        embedding.positions.embedding.embeddings.assign(w["transformer.wpe.weight"])
        for i, layer in enumerate(model.decoder.layers):
            name = f"transformer.h.{i}"
            attention, feed_forward = layer.self_attention, layer.feed_forward
            kernels = np.split(w[f"{name}.attn.c_attn.weight"], 3, axis=1)
            biases = np.split(w[f"{name}.attn.c_attn.bias"], 3)
            mine = attention.attention
            for dense, kernel, bias in zip(
                (mine.query_dense, mine.key_dense, mine.value_dense), kernels, biases, strict=True
            ):
                _dense(dense, kernel, bias)
            for dense, part in (
                (mine.output_dense, "attn.c_proj"),
                (feed_forward.hidden_dense, "mlp.c_fc"),
                (feed_forward.output_dense, "mlp.c_proj"),
            ):
                _dense(dense, w[f"{name}.{part}.weight"], w[f"{name}.{part}.bias"])
            _layer_norm(attention.residual.norm, w, f"{name}.ln_1")
            _layer_norm(feed_forward.residual.norm, w, f"{name}.ln_2")
        _layer_norm(model.decoder.norm, w, "transformer.ln_f")


class BERT:
    """An encoder: post-norm, learned positions and a norm of the embedding, exact GELU."""

    def __init__(self, sizes):
        self.sizes = sizes

    def model(self):
        s = self.sizes
        return TokenClassifier(
            TransformerConfig(
                source_vocab=s["vocab"],
                target_vocab=s["vocab"],
                encoder_layers=s["layers"],
                d_model=s["d_model"],
                num_heads=s["heads"],
                dff=s["dff"],
                norm_epsilon=1e-12,
                activation="gelu",
                positions="learned",
                max_length=64,
                embedding_scale=False,
                embedding_norm=True,
                dropout_rate=0.0,
            ),
            num_classes=2,
        )

    def load(self, model, w):
        embedding = model.encoder.embedding
        embedding.tokens.embeddings.assign(w["embeddings.word_embeddings.weight"])
        # The type of a first sentence is the same vector everywhere.
        positions = w["embeddings.position_embeddings.weight"]
        positions = positions + w["embeddings.token_type_embeddings.weight"][0]
        embedding.positions.embedding.embeddings.assign(positions)
        _layer_norm(embedding.norm, w, "embeddings.LayerNorm")
        for i, layer in enumerate(model.encoder.layers):
            name = f"encoder.layer.{i}"
            names = [f"{name}.attention.self.{p}" for p in ("query", "key", "value")]
            attention, feed_forward = layer.self_attention, layer.feed_forward
            _attention(attention.attention, w, [*names, f"{name}.attention.output.dense"])
            _layer_norm(attention.residual.norm, w, f"{name}.attention.output.LayerNorm")
            for dense, part in (
                (feed_forward.hidden_dense, "intermediate.dense"),
                (feed_forward.output_dense, "output.dense"),
            ):
                _dense(dense, w[f"{name}.{part}.weight"].T, w[f"{name}.{part}.bias"])
            _layer_norm(feed_forward.residual.norm, w, f"{name}.output.LayerNorm")


class T5:
    """Relative bias, no biases, RMS normalisation, gated GELU, unscaled attention (version 1.1)."""

    def __init__(self, sizes):
        self.sizes = sizes

    def model(self):
        s = self.sizes
        return TranslationModel(
            TransformerConfig(
                source_vocab=s["vocab"],
                target_vocab=s["vocab"],
                encoder_layers=s["layers"],
                decoder_layers=s["layers"],
                d_model=s["d_model"],
                num_heads=s["heads"],
                dff=s["dff"],
                norm_first=True,
                norm="rms",
                norm_epsilon=1e-6,
                gated=True,
                activation="gelu_tanh",
                use_bias=False,
                positions="relative",
                embedding_scale=False,
                tied_logits=False,
                logits_bias=False,
                dropout_rate=0.0,
            )
        )

    def load(self, model, w):
        model.encoder.embedding.tokens.embeddings.assign(w["shared.weight"])
        scale = np.sqrt(self.sizes["d_model"] // self.sizes["heads"])
        for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
            bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            stack.relative_positions.table.assign(w[bias])
            for i, layer in enumerate(stack.layers):
                name = f"{side}.block.{i}.layer"
                sublayers = [(layer.self_attention, "SelfAttention")]
                if side == "decoder":
                    sublayers.append((layer.cross_attention, "EncDecAttention"))
                for n, (sublayer, kind) in enumerate(sublayers):
                    names = [f"{name}.{n}.{kind}.{p}" for p in "qkvo"]
                    _attention(sublayer.attention, w, names, scale)
                    sublayer.residual.norm.scale.assign(w[f"{name}.{n}.layer_norm.weight"])
                last, feed_forward = f"{name}.{len(sublayers)}", layer.feed_forward
                inner = f"{last}.DenseReluDense"
                _dense(feed_forward.gate_dense, w[f"{inner}.wi_0.weight"].T)
                _dense(feed_forward.hidden_dense, w[f"{inner}.wi_1.weight"].T)
                _dense(feed_forward.output_dense, w[f"{inner}.wo.weight"].T)
                feed_forward.residual.norm.scale.assign(w[f"{last}.layer_norm.weight"])
            stack.norm.scale.assign(w[f"{side}.final_layer_norm.weight"])
        _dense(model.logits.dense, w["lm_head.weight"].T)


def _layer_norm(norm, weights, name):
    norm.gamma.assign(weights[f"{name}.weight"])
    norm.beta.assign(weights[f"{name}.bias"])


PEERS = {"llama": Llama, "gpt2": GPT2, "bert": BERT, "t5": T5}
