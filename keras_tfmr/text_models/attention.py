"""Attention scores as outputs of the signature `explain`."""

import tensorflow as tf


def attention_outputs(scores, source_ids, target_ids, fed_ids):
    """The outputs of `explain` about attention; all are 0 where either token is padding.

    Args:
        scores: The `AttentionScores` of a model.
        source_ids: int32 [batch, source].
        target_ids: int32 [batch, target]; row t of scores is that with which token t was predicted.
        fed_ids: The ids that the decoder read, int32 [batch, target].

    Returns:
        `attention_heads` float32 [batch, layers, heads, target, source], the cross-attention;
        `attention` [batch, target, source], its mean over layers and heads; and as far as the model
        has them, `encoder_heads` [batch, layers, heads, source, source] and `decoder_heads`
        [batch, layers, heads, target, target], whose column s is the token before target token s.
    """
    heads = _stacked(scores.cross, target_ids, source_ids)
    outputs = {"attention": tf.reduce_mean(heads, axis=[1, 2]), "attention_heads": heads}
    if scores.encoder:
        outputs["encoder_heads"] = _stacked(scores.encoder, source_ids, source_ids)
    if scores.decoder:
        outputs["decoder_heads"] = _stacked(scores.decoder, target_ids, fed_ids)
    return outputs


def _stacked(scores, query_ids, key_ids):
    """Scores of all layers, float32 [batch, layers, heads, query, key], 0 at padding."""
    heads = tf.cast(tf.stack(scores, axis=1), tf.float32)
    real = (query_ids != 0)[:, :, None] & (key_ids != 0)[:, None, :]
    return tf.where(real[:, None, None], heads, 0.0)
