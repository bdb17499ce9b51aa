"""Decoding by the model itself, called on all tokens so far: slow; `CachedStep` must equal it."""

from keras import ops

from keras_tfmr import _checks
from keras_tfmr.decoding.step import DecodingStep


class WholeSequenceStep(DecodingStep):
    """A `DecodingStep` that calls decoder and head on all tokens so far.

    It decodes every functional model, on every backend. The time of a search grows with the square
    of its length. `CachedStep` is faster, and is tested against this one.

    Args:
        graph: The `Graph` of a model.
        num_beams, max_length: As for `TranslationModel.start`.
        context, mask: What `Graph.encoded` gave, if the decoder has a context.
        before: The number of tokens to decode before these, those of a prompt.

    The state is `ids` int32 `[rows, max_length]`, the tokens fed so far with padding behind them,
    and their number, an int32 scalar.
    """

    def __init__(self, graph, num_beams, max_length, context=None, mask=None, before=0):
        self.num_beams = _checks.integer("num_beams", num_beams, 1)
        self.max_length = before + _checks.integer("max_length", max_length, 1)
        self.vocab_size = graph.embedding.vocab_size
        self.graph = graph
        self.context = None if context is None else ops.repeat(context, num_beams, axis=0)
        self.mask = None if mask is None else ops.repeat(mask, num_beams, axis=0)

    def start(self, batch):
        """The state before the first token of `batch` examples."""
        ids = ops.zeros((batch * self.num_beams, self.max_length), "int32")
        return {"ids": ids, "length": ops.zeros((), "int32")}

    def next(self, tokens, state):
        ids, length = state["ids"], state["length"]
        here = ops.equal(ops.arange(ops.shape(ids)[1], dtype="int32"), length)
        ids = ops.where(here, tokens[:, None], ids)  # [rows, max_length]
        logits = self.graph.decoded(ids, self.context, self.mask)  # [rows, max_length, vocab]
        log_probs = ops.log_softmax(ops.take(logits, length, axis=1), axis=-1)
        return log_probs, {"ids": ids, "length": length + 1}
