"""Assigns the weights of a published model to our Transformer."""

import numpy as np

from training.files import RunError

ATTENTION = (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o"))


class Weights:
    """Reads arrays by Marian's names, reorders them, and records which are left.

    Marian's position vectors have all sines before all cosines; in ours they alternate. Every
    weight along this dimension is reordered, which changes no product and no normalisation.
    """

    def __init__(self, published):
        self.published, self.config = published, published.config
        self.order = np.arange(self.config["d_model"]).reshape(2, -1).T.reshape(-1)
        self.left = dict(published.arrays)

    def assign(self, model):
        """Sets every weight of a `TranslationModel` of the published config.

        Raises:
            RunError: If an array is missing, has another shape, or does not belong to the model.
        """
        self._embeddings(model)
        self._logits(model.logits)
        for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
            for number, layer in enumerate(stack.layers, 1):
                self._layer(f"{side}_l{number}", layer)
            if stack.norm is not None:
                self._norm(f"{side}_top_ln_{{}}", stack.norm)
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
            table = self._rows(name, vocabulary, keep=True)[:, self.order]
            self._set(getattr(model, side).embedding.tokens.embeddings, name, table)
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
            kernel = self._rows(name, target, columns=True)[:, self.order]
            self._set(logits.dense.kernel, name, kernel.T)

    def _rows(self, name, vocabulary, keep=False, columns=False):
        """A table with a row for each of our ids; `columns` for one that has them as columns."""
        table = self._array(name, keep)
        table = table.reshape(-1, table.shape[-1]).T if columns else table
        if len(table) < len(vocabulary.pieces):
            raise RunError(
                f"{name} has {len(table)} rows, the vocabulary {len(vocabulary.pieces)} pieces"
            )
        return table if name.endswith("_b") else vocabulary.rows(table)

    def _layer(self, name, layer):
        pre = "_pre" if self.config.get("norm_first") else ""  # ends the name of a norm before
        sublayers = {}
        if hasattr(layer, "ssru"):
            self._ssru(f"{name}_rnn", layer.ssru, pre)
        else:
            sublayers["self"] = layer.self_attention
        if hasattr(layer, "cross_attention"):
            sublayers["context"] = layer.cross_attention
        for kind, sublayer in sublayers.items():
            for ours, theirs in ATTENTION:
                dense = getattr(sublayer.attention, f"{ours}_dense")
                self._dense(f"{name}_{kind}_{{}}{theirs}", dense, writes=theirs == "o")
            self._norm(f"{name}_{kind}_Wo_ln_{{}}{pre}", sublayer.residual.norm)
        feed_forward = layer.feed_forward
        self._dense(f"{name}_ffn_{{}}1", feed_forward.hidden_dense)
        self._dense(f"{name}_ffn_{{}}2", feed_forward.output_dense, writes=True)
        self._norm(f"{name}_ffn_ffn_ln_{{}}{pre}", feed_forward.residual.norm)

    def _ssru(self, name, ssru, pre):
        for dense, kind in ((ssru.candidate_dense, "W"), (ssru.forget_dense, "Wf")):
            kernel = self._array(f"{name}_{kind}")[self.order][:, self.order]
            self._set(dense.kernel, f"{name}_{kind}", kernel)
        bias = self._array(f"{name}_bf").reshape(-1)[self.order]
        self._set(ssru.forget_dense.bias, f"{name}_bf", bias)
        self._norm(f"{name}{'' if pre else '_ffn'}_ln_{{}}{pre}", ssru.residual.norm)

    def _dense(self, name, dense, writes=False):
        """A product that reads vectors of the model's width or, if it `writes`, makes them."""
        kernel, bias = self._array(name.format("W")), self._array(name.format("b")).reshape(-1)
        if writes:
            kernel, bias = kernel[:, self.order], bias[self.order]
        else:
            kernel = kernel[self.order]
        self._set(dense.kernel, name.format("W"), kernel)
        self._set(dense.bias, name.format("b"), bias)

    def _norm(self, name, norm):
        for weight, kind in ((norm.gamma, "scale"), (norm.beta, "bias")):
            array = self._array(name.format(kind)).reshape(-1)[self.order]
            self._set(weight, name.format(kind), array)

    def _array(self, name, keep=False):
        if name not in self.left:
            raise RunError(f"the model has no array {name}")
        array = self.left[name] if keep else self.left.pop(name)
        if array.dtype.kind != "f":
            raise RunError(f"{name} holds {array.dtype}; expected floats")
        return array.astype("float32", copy=False)

    def _set(self, weight, name, value):
        if tuple(weight.shape) != value.shape:
            raise RunError(
                f"{name} has shape {value.shape} in our layout; expected {tuple(weight.shape)}"
            )
        weight.assign(value)
