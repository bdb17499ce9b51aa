"""Vaswani et al., "Attention Is All You Need" (arXiv 1706.03762), in NumPy from the formulas.

Nothing here looks at the package: `weights` are plain arrays. A projection is a pair (kernel,
bias); attention has four: "query", "key", "value" [width, heads, dim] and "output" [heads, dim,
width].
"""

import numpy as np


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def positions(length, d_model):
    """Section 3.5, entry by entry: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos."""
    table = np.zeros((length, d_model))
    for position in range(length):
        for column in range(d_model):
            angle = position / 10000 ** (2 * (column // 2) / d_model)
            table[position, column] = np.cos(angle) if column % 2 else np.sin(angle)
    return table


def attention(query, key, value, weights, mask=None):
    """Section 3.2: one head after the other. mask: bool [batch, query, key], True = may attend.

    Returns: output [batch, query, width], scores [batch, heads, query, key].
    """
    (wq, bq), (wk, bk), (wv, bv), (wo, bo) = (
        weights[name] for name in ("query", "key", "value", "output")
    )
    output, scores = bo, []
    for head in range(wq.shape[1]):
        q = query @ wq[:, head] + bq[head]  # [batch, query, key_dim]
        k = key @ wk[:, head] + bk[head]  # [batch, key, key_dim]
        v = value @ wv[:, head] + bv[head]  # [batch, key, value_dim]
        logits = q @ k.transpose(0, 2, 1) / np.sqrt(wq.shape[2])  # [batch, query, key]
        if mask is not None:
            logits = np.where(mask, logits, -1e9)
        scores.append(softmax(logits))
        output = output + scores[-1] @ v @ wo[head]
    return output, np.stack(scores, axis=1)


def layer_norm(x, gamma, beta, epsilon):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


def feed_forward(x, weights):
    """Section 3.3: FFN(x) = max(0, x W1 + b1) W2 + b2."""
    (w1, b1), (w2, b2) = weights
    return np.maximum(0, x @ w1 + b1) @ w2 + b2


def residual(x, sublayer, norm, norm_first):
    """Section 3.1, LayerNorm(x + Sublayer(x)); or pre-norm, x + Sublayer(LayerNorm(x))."""
    if norm_first:
        return x + sublayer(layer_norm(x, *norm))
    return layer_norm(x + sublayer(x), *norm)


def layer(x, weights, mask=None, context=None, context_mask=None, norm_first=False):
    """An encoder layer, or with a context a decoder layer; the masks are `attention`'s.

    weights: "attention", "attention_norm", "feed_forward", "feed_forward_norm", and of a decoder
    layer "cross", "cross_norm".
    """

    def attend(name, y, context, mask):
        return attention(y, context, context, weights[name], mask)[0]

    sublayers = {"attention": lambda y: attend("attention", y, y, mask)}
    if context is not None:
        sublayers["cross"] = lambda y: attend("cross", y, context, context_mask)
    sublayers["feed_forward"] = lambda y: feed_forward(y, weights["feed_forward"])
    for name, sublayer in sublayers.items():
        x = residual(x, sublayer, weights[f"{name}_norm"], norm_first)
    return x
