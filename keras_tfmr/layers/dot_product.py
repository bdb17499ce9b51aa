"""Dot-product attention on tensors: plain, with shared key heads, and by a backend's kernel."""

import math

import keras
from keras import ops

from keras_tfmr import _checks
from keras_tfmr.config import Tensor
from keras_tfmr.layers.masking import masked_softmax


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(QKᵀ / √d) V: attention with one head and without projections.

    Args:
        query: Tensor `[..., query, d]`.
        key: Tensor `[..., key, d]`.
        value: Tensor `[..., key, value_dim]`.
        mask: bool tensor that broadcasts to `[..., query, key]`, True = may attend.

    Returns:
        Tensor `[..., query, value_dim]`, zero for a query that may attend to nothing, and the
        scores `[..., query, key]`.

    Raises:
        ValueError: If the shapes do not fit.

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.1.

    >>> x = np.eye(3, dtype="float32")
    >>> y, scores = scaled_dot_product_attention(x, x, x, mask=np.eye(3, dtype=bool))
    >>> np.array(y).tolist() == x.tolist()
    True
    """
    query, key, value = (ops.convert_to_tensor(tensor) for tensor in (query, key, value))
    (*batch, length, width), keys = query.shape, key.shape[-2]
    _checks.same_shape("key", key, (*batch, keys, width))
    _checks.same_shape("value", value, (*batch, keys, value.shape[-1]))
    # Divided before the product, which could overflow in float16.
    scores = ops.matmul(query / math.sqrt(width), ops.swapaxes(key, -1, -2))
    if mask is not None:
        mask = ops.convert_to_tensor(mask)
        _checks.broadcasts("mask", mask, (*batch, length, keys))
        mask = _checks.as_bool("mask", mask)
    weights = ops.cast(masked_softmax(scores, mask), value.dtype)
    return ops.matmul(weights, value), weights


def grouped_matmul(x, y):
    """`[batch, heads, query, n]` times `[batch, kv_heads, n, m]` → `[batch, heads, query, m]`.

    Each of the `kv_heads` serves several heads side by side, without being copied.
    """
    heads, kv_heads = x.shape[1], y.shape[1]
    if heads == kv_heads:
        return ops.matmul(x, y)
    (batch, _, query, n), m = ops.shape(x), ops.shape(y)[3]
    x = ops.reshape(x, (batch, kv_heads, heads // kv_heads * query, n))
    return ops.reshape(ops.matmul(x, y), (batch, heads, query, m))


def fused_attention(queries, keys, values, bias=None, causal=False):
    """`[batch, heads, query, value_dim]` by the backend's kernel.

    Args:
        queries: `[batch, heads, query, key_dim]`, divided by √key_dim.
        keys: `[batch, kv_heads, key, key_dim]`.
        values: `[batch, kv_heads, key, value_dim]`.
        bias: The output of `mask_bias`.
        causal: Whether a query may attend only to its own and earlier positions; only without a
            bias.
    """
    kernel = None  # as Keras finds best
    if bias is not None:
        bias = ops.reshape(bias, (1,) * (4 - len(bias.shape)) + tuple(ops.shape(bias)))
        if keras.backend.backend() == "jax":
            # cuDNN's kernel takes a bias of all queries only; without it, JAX creates the scores.
            sizes = (ops.shape(queries)[2], ops.shape(keys)[2])
            bias = ops.broadcast_to(bias, (*ops.shape(bias)[:2], *sizes))
            # Keras does not ask whether it trains, where cuDNN takes a bias of even lengths only;
            # on a TPU it leaves out the bias.
            odd = any(size % 2 for size in sizes if size)
            if odd or keras.distribution.list_devices()[0].startswith("tpu"):
                kernel = False
    y = ops.dot_product_attention(
        ops.transpose(queries, (0, 2, 1, 3)),
        ops.transpose(keys, (0, 2, 1, 3)),
        ops.transpose(values, (0, 2, 1, 3)),
        bias=bias,
        is_causal=causal,
        scale=1.0,
        flash_attention=kernel,
    )  # [batch, query, heads, value_dim]
    return ops.transpose(y, (0, 2, 1, 3))
