"""Assigns the weights of a published model to our Transformer."""

import numpy as np

from keras_tfmr.export.marian_names import halves, layer_weights, reordered
from training.files import RunError


class Weights:
    """Reads arrays by Marian's names, reorders them, and records which are left."""

    def __init__(self, published):
        self.published, self.config = published, published.config
        self.order = np.argsort(halves(self.config["d_model"]))
        self.left = dict(published.arrays)

    def assign(self, model):
        """Sets every weight of a `TranslationModel` of the published config.

        Raises:
            RunError: If an array is missing, has another shape, or does not belong to the model.
        """
        self._embeddings(model)
        self._logits(model.logits)
        for name, weight, axes in layer_weights(model):
            array = self._array(name)
            self._set(weight, name, array.reshape(-1) if len(weight.shape) == 1 else array, axes)
        if self.left:
            names = ", ".join(sorted(self.left)[:5])
            raise RunError(
                f"the model has {len(self.left)} arrays that no Marian Transformer has: {names}"
            )

    def _embeddings(self, model):
        sides = {"encoder": self.published.source, "decoder": self.published.target}
        if self.config["joint_vocab"]:
            del sides["encoder"]
        shared = "Wemb" in self.left
        for side, vocabulary in sides.items():
            name = "Wemb" if shared else f"{side}_Wemb"
            table = self._rows(name, vocabulary, keep=True)
            self._set(getattr(model, side).embedding.tokens.embeddings, name, table, (1,))
        for name in ("Wemb",) if shared else ("encoder_Wemb", "decoder_Wemb"):
            self.left.pop(name, None)

    def _logits(self, logits):
        target, tied = self.published.target, self.config["tied_logits"]
        name = "decoder_ff_logit_out_b"
        bias = self._rows(name, target, columns=True)[:, 0]
        bias = target.biases(bias, self.published.banned)
        self._set(logits.bias if tied else logits.dense.bias, name, bias)
        if not tied:
            name = "decoder_ff_logit_out_W"
            kernel = self._rows(name, target, columns=True).T
            self._set(logits.dense.kernel, name, kernel, (0,))

    def _rows(self, name, vocabulary, keep=False, columns=False):
        """A table with a row for each of our ids; `columns` for one that has them as columns."""
        table = self._array(name, keep)
        table = table.reshape(-1, table.shape[-1]).T if columns else table
        if len(table) < len(vocabulary.pieces):
            raise RunError(
                f"{name} has {len(table)} rows, the vocabulary {len(vocabulary.pieces)} pieces"
            )
        return table if name.endswith("_b") else vocabulary.rows(table)

    def _array(self, name, keep=False):
        if name not in self.left:
            raise RunError(f"the model has no array {name}")
        array = self.left[name] if keep else self.left.pop(name)
        if array.dtype.kind != "f":
            raise RunError(f"{name} holds {array.dtype}; expected floats")
        return array.astype("float32", copy=False)

    def _set(self, weight, name, value, axes=()):
        """Assigns an array, with our order along these axes."""
        if tuple(weight.shape) != value.shape:
            raise RunError(
                f"{name} has shape {value.shape} in our layout; expected {tuple(weight.shape)}"
            )
        weight.assign(reordered(value, self.order, axes))
