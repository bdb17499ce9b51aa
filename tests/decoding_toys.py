"""Toy models for the decoding tests: tables that know no layers, and exhaustive search on them."""

import itertools

import keras
import numpy as np
from keras import ops

from keras_tfmr.decoding import DecodingStep
from keras_tfmr.decoding.search import rows_of


def normalise(logits):
    logits = np.asarray(logits, "float32")
    return (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype("float32")


class HashModel:
    """A random model whose next-token probabilities depend on the example and on all tokens so far.

    Its state is a hash of the history, so a beam whose state were not reordered would go astray.
    """

    def __init__(self, vocab, batch, seed, sharpness=1.5, buckets=211):
        rng = np.random.default_rng(seed)
        self.vocab, self.batch, self.buckets = vocab, batch, buckets
        self.table = normalise(rng.normal(size=(batch, buckets, vocab)) * sharpness)

    def next_hash(self, hashed, token):
        return (hashed * 31 + token * 17 + 5) % self.buckets

    def start(self, beams=1, examples=None):
        """step and state; `examples` takes some rows of the batch."""
        table = self.table if examples is None else self.table[examples]
        batch = len(table)
        flat = table.reshape(batch * self.buckets, self.vocab)
        example = np.repeat(np.arange(batch, dtype="int32"), beams)

        def step(tokens, state):
            hashed = self.next_hash(state["hash"], tokens)
            rows = ops.take(flat, hashed + example * self.buckets, axis=0)
            return rows, {"hash": hashed, "count": state["count"] + 1}

        zero = ops.convert_to_tensor(0, dtype="int32")
        return step, {"hash": ops.zeros(batch * beams, dtype="int32"), "count": zero}

    def log_prob(self, example, tokens, bos_id=0):
        """Sum of log-probabilities of a sequence, in float32 as the search sums it."""
        total, hashed, last = np.float32(0), 0, bos_id
        for token in tokens:
            hashed = self.next_hash(hashed, last)
            total, last = np.float32(total + self.table[example, hashed, token]), token
        return total

    def exhaustive(self, example, eos_id, limit, alpha, allowed=None, min_length=0):
        """All complete hypotheses, best first: `[(score, log_prob, tokens)]`."""
        allowed = range(1, self.vocab) if allowed is None else allowed  # 0 is padding
        inner = [token for token in allowed if token != eos_id]
        found = []
        for length in range(1, limit + 1):
            lasts = [eos_id] if length < limit else [eos_id, *inner]
            for body in itertools.product(inner, repeat=length - 1):
                for last in lasts:
                    if last == eos_id and length < min_length:
                        continue
                    log_prob = self.log_prob(example, (*body, last))
                    score = log_prob / ((5 + length) / 6) ** alpha
                    found.append((score, log_prob, (*body, last)))
        return sorted(found, key=lambda entry: -entry[0])


class HistoryStep(DecodingStep):
    """The step of a `HashModel` that keeps all tokens, in a cache that grows with them.

    Args:
        model: HashModel.
        beams: Rows of an example.
        max_length: Number of tokens that can be decoded.
        examples: int32 `[batch]`, the model's examples in the batch; None for all.
        batches: A list to which the size of each batch is added that `select_step` leaves.
    """

    # Under JAX both sides of a condition are traced, and a batch has a fixed size.
    shrinks = keras.backend.backend() != "jax"

    def __init__(self, model, beams, max_length, examples=None, batches=None):
        self.model, self.beams, self.max_length = model, beams, max_length
        self.examples = np.arange(model.batch, dtype="int32") if examples is None else examples
        self.batches = [] if batches is None else batches

    def start(self):
        shape = len(self.examples) * self.beams, self.max_length
        return {"index": ops.zeros((), "int32"), "tokens": ops.zeros(shape, "int32")}

    def next(self, tokens, state):
        model, index = self.model, state["index"]
        places = np.arange(state["tokens"].shape[1], dtype="int32")
        history = ops.where(ops.equal(places, index), tokens[:, None], state["tokens"])
        hashed = ops.zeros_like(tokens)
        for place in places:
            hashed = ops.where(index < place, hashed, model.next_hash(hashed, history[:, place]))
        rows = ops.repeat(ops.convert_to_tensor(self.examples), self.beams) * model.buckets + hashed
        table = model.table.reshape(-1, model.vocab)
        return ops.take(table, rows, axis=0), {"index": index + 1, "tokens": history}

    def select_step(self, examples):
        kept = ops.take(self.examples, examples, axis=0)
        self.batches.append(kept.shape[0])
        return HistoryStep(self.model, self.beams, self.max_length, kept, self.batches)

    def select_state(self, state, examples):
        rows = rows_of(examples, self.beams)
        return {**state, "tokens": ops.take(state["tokens"], rows, axis=0)}

    def resize(self, state, cache_size):
        tokens = state["tokens"][:, :cache_size]
        more = cache_size - tokens.shape[1]
        return {**state, "tokens": ops.pad(tokens, [[0, 0], [0, more]])}


def hypotheses(result, example):
    """`[(tokens, log_prob, score)]` of one example, and a check that padding follows them."""
    ids, lengths, log_probs, scores = (np.array(field)[example] for field in result)
    found = []
    for row, length, log_prob, score in zip(ids, lengths, log_probs, scores, strict=True):
        assert not row[length:].any()
        found.append((tuple(int(token) for token in row[:length]), float(log_prob), float(score)))
    return found
