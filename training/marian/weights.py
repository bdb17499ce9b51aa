"""Assigns the weights of a published model to our Transformer."""

import numpy as np

from training.marian.published import MarianError

ATTENTION = (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o"))


def interleaved(width):
    """The index of each of our dimensions in Marian's layout: int `[width]`.

    Marian's position vectors have all sines before all cosines; in ours they alternate. Every
    weight along this dimension is reordered, which changes no product and no normalisation.
    """
    return np.arange(width).reshape(2, -1).T.reshape(-1)


class Weights:
    """Reads arrays by Marian's names, reorders them, and records which are left.

    Args:
        published: A `Published`.
    """

    def __init__(self, published):
        self.published = published
        self.width = published.config["d_model"]
        self.order = interleaved(self.width)
        self.left = dict(published.arrays)

    def assign(self, model):
        """Sets every weight of a `TranslationModel` of the published config.

        Raises:
            MarianError: If an array is missing, has another shape, or does not belong to the model.
        """
        self._embeddings(model)
        for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
            for number, layer in enumerate(stack.layers, 1):
                self._layer(f"{side}_l{number}", layer)
        if self.left:
            names = ", ".join(sorted(self.left)[:5])
            raise MarianError(
                f"the model has {len(self.left)} arrays that no Marian Transformer has: {names}"
            )

    def _embeddings(self, model):
        source, target = self.published.source, self.published.target
        if self.published.config["joint_vocab"]:
            table = target.rows(self._table("Wemb", target))
            self._set(model.decoder.embedding.tokens.embeddings, "Wemb", table)
        else:
            shared = "Wemb" if "Wemb" in self.left else None
            for side, vocabulary in (("encoder", source), ("decoder", target)):
                name = shared or f"{side}_Wemb"
                table = vocabulary.rows(self._table(name, vocabulary, keep=shared is not None))
                self._set(getattr(model, side).embedding.tokens.embeddings, name, table)
            self.left.pop(shared, None)
        name = "decoder_ff_logit_out_b"
        bias = self._array(name).reshape(-1)
        self._rows(name, bias, target)
        bias = target.biases(bias, self.published.banned)
        if self.published.config["tied_logits"]:
            self._set(model.logits.bias, name, bias)
            return
        self._set(model.logits.dense.bias, name, bias)
        name = "decoder_ff_logit_out_W"
        kernel = self._array(name)
        self._rows(name, kernel.T, target)
        kernel = target.rows(kernel.T[:, self.order]).T
        self._set(model.logits.dense.kernel, name, kernel)

    def _table(self, name, vocabulary, keep=False):
        table = self._array(name, keep)
        self._rows(name, table, vocabulary)
        return table[:, self.order]

    def _rows(self, name, table, vocabulary):
        if len(table) < len(vocabulary.pieces):
            raise MarianError(
                f"{name} has {len(table)} rows, the vocabulary {len(vocabulary.pieces)} pieces"
            )

    def _layer(self, name, layer):
        sublayers = [("self", layer.self_attention)]
        if hasattr(layer, "cross_attention"):
            sublayers.append(("context", layer.cross_attention))
        for kind, sublayer in sublayers:
            for ours, theirs in ATTENTION:
                dense = getattr(sublayer.attention, f"{ours}_dense")
                out = theirs == "o"
                self._dense(f"{name}_{kind}", theirs, dense, reads=not out, writes=out)
            self._norm(f"{name}_{kind}_Wo_ln", sublayer.residual.norm)
        feed_forward = layer.feed_forward
        self._dense(f"{name}_ffn", "1", feed_forward.hidden_dense, reads=True)
        self._dense(f"{name}_ffn", "2", feed_forward.output_dense, writes=True)
        self._norm(f"{name}_ffn_ffn_ln", feed_forward.residual.norm)

    def _dense(self, name, letter, dense, reads=False, writes=False):
        """A product that reads or writes vectors of the model's width."""
        kernel = self._array(f"{name}_W{letter}")
        bias = self._array(f"{name}_b{letter}").reshape(-1)
        if reads:
            kernel = kernel[self.order]
        if writes:
            kernel, bias = kernel[:, self.order], bias[self.order]
        self._set(dense.kernel, f"{name}_W{letter}", kernel)
        self._set(dense.bias, f"{name}_b{letter}", bias)

    def _norm(self, name, norm):
        for weight, kind in ((norm.gamma, "scale"), (norm.beta, "bias")):
            array = self._array(f"{name}_{kind}").reshape(-1)[self.order]
            self._set(weight, f"{name}_{kind}", array)

    def _array(self, name, keep=False):
        if name not in self.left:
            raise MarianError(f"the model has no array {name}")
        array = self.left[name] if keep else self.left.pop(name)
        if array.dtype.kind != "f":
            raise MarianError(f"{name} holds {array.dtype}; expected floats")
        return array.astype("float32", copy=False)

    def _set(self, weight, name, value):
        if tuple(weight.shape) != value.shape:
            raise MarianError(
                f"{name} has shape {value.shape} in our layout; expected {tuple(weight.shape)}"
            )
        weight.assign(value)
