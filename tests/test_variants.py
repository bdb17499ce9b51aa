"""Other kinds of Transformer by composition: subclasses that name other parts."""

import keras
import numpy as np
import pytest
from helpers import (
    dtype_policy,
    functional,
    random,
    random_ids,
    randomize,
    to_numpy,
    weights_by_path,
)
from keras import ops

from keras_tfmr.layers import (
    CausalSelfAttention,
    CrossAttention,
    Decoder,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    GlobalSelfAttention,
    Logits,
    PreNormResidual,
)
from keras_tfmr.layers.incremental import IncrementalDecoder

register = keras.saving.register_keras_serializable(package="test_variants")


@register
class RMSNormalization(keras.layers.RMSNormalization):
    """Keras's own, which forgets to pass masks on."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True


@register
class RMSResidual(PreNormResidual):
    norm_class = RMSNormalization


class RMSNormalised:
    residual_classes = (None, RMSResidual)


@register
class GatedFeedForward(RMSNormalised, FeedForward):
    """(silu(xW₁) ∘ xV)W₂: Shazeer 2020, arXiv 2002.05202."""

    def build(self, x_shape):
        self.gate = keras.layers.Dense(self.dff, "silu", dtype=self.dtype_policy, name="gate")
        self.gate.build(x_shape)
        super().build(x_shape)

    def call(self, x, training=None):
        h = self.residual.prepare(x)
        return self.residual(x, self.output_dense(self.gate(h) * self.hidden(h)), training=training)


class RMSGlobal(RMSNormalised, GlobalSelfAttention):
    pass


class RMSCausal(RMSNormalised, CausalSelfAttention):
    pass


class RMSCross(RMSNormalised, CrossAttention):
    pass


@register
class ModernEncoderLayer(EncoderLayer):
    attention_class, feed_forward_class = RMSGlobal, GatedFeedForward


class ModernDecoderLayer(DecoderLayer):
    attention_class, cross_attention_class = RMSCausal, RMSCross
    feed_forward_class = GatedFeedForward


class ModernDecoder(Decoder):
    layer_class, norm_class = ModernDecoderLayer, RMSNormalization


SIZES = {"d_model": 12, "num_heads": 2, "dff": 20, "norm_first": True}


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_variant_is_saved_and_loaded(policy, tmp_path):
    x = random(3, 4, 12)
    with dtype_policy(policy):
        model = functional(ModernEncoderLayer(**SIZES), [x])
    randomize(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert any("gate" in path for path in weights_by_path(loaded))
    np.testing.assert_array_equal(to_numpy(loaded([x])), to_numpy(model([x])))


def test_numbers_of_the_gated_layer():
    layer = GatedFeedForward(12, 20, 0.0, norm_first=True)
    x = random(3, 4, 12)
    layer(x)
    randomize(layer)
    h = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + layer.residual.norm.epsilon)
    h = h * to_numpy(layer.residual.norm.scale)
    gate, hidden, output = (
        [to_numpy(v) for v in dense.weights]
        for dense in (layer.gate, layer.hidden, layer.output_dense)
    )
    gated = h @ gate[0] + gate[1]
    gated = gated / (1 + np.exp(-gated)) * np.maximum(h @ hidden[0] + hidden[1], 0)
    np.testing.assert_allclose(layer(x), x + gated @ output[0] + output[1], atol=1e-5)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_variant_decodes_one_token_at_a_time(beams):
    decoder, logits = ModernDecoder(num_layers=2, vocab_size=30, **SIZES), Logits(30)
    context, ids = random(2, 5, 12), random_ids(2, 4, vocab=30)
    mask = np.array([[True] * 5, [True] * 3 + [False] * 2])
    expected = ops.log_softmax(logits(decoder(ids, context, context_mask=mask)), axis=-1)
    step = IncrementalDecoder(
        decoder, logits, context, mask, beams=beams, max_length=4, compiled=False
    )
    state = step.start()
    for position in range(4):
        tokens = ops.repeat(ops.convert_to_tensor(ids[:, position]), beams, axis=0)
        log_probs, state = step(tokens, state)
        np.testing.assert_allclose(log_probs[::beams], expected[:, position], atol=1e-5)
