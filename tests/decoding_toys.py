"""Toy models for the decoding tests: tables that know no layers; a search with lists on them."""

import dataclasses

import numpy as np
from keras import ops

from keras_tfmr.decoding import DecodingConfig, DecodingStep, Examples, search

CONFIG = {field.name for field in dataclasses.fields(DecodingConfig)}


def decode(step, state, *, choose=None, num_certain=None, **given):
    """A `search`, given fields of its config and of its examples; greedy, with no penalty."""
    fields = {"num_beams": 1, "length_penalty": 0.0}
    fields |= {name: given.pop(name) for name in CONFIG & {*given}}
    options = {"choose": choose, "num_certain": num_certain}
    return search(step, state, DecodingConfig(**fields), Examples(**given), **options)


def normalise(logits):
    logits = np.asarray(logits, "float32")
    return (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype("float32")


class HashModel:
    """A random model whose next-token probabilities depend on the example and on all tokens so far.

    Its state is a hash of the history, so a beam whose state were not reordered would go astray.
    """

    def __init__(self, vocab, batch, seed, sharpness=1.5, buckets=211, change=np.asarray):
        rng = np.random.default_rng(seed)
        self.vocab, self.batch, self.buckets = vocab, batch, buckets
        self.table = normalise(change(rng.normal(size=(batch, buckets, vocab)) * sharpness))

    def next_hash(self, hashed, token):
        return (hashed * 31 + token * 17 + 5) % self.buckets

    def start(self, beams=1):
        flat = self.table.reshape(self.batch * self.buckets, self.vocab)
        example = np.repeat(np.arange(self.batch, dtype="int32"), beams)

        def step(tokens, state):
            hashed = self.next_hash(state["hash"], tokens)
            rows = ops.take(flat, hashed + example * self.buckets, axis=0)
            return rows, {"hash": hashed, "count": state["count"] + 1}

        zero = ops.convert_to_tensor(0, dtype="int32")
        return step, {"hash": ops.zeros(self.batch * beams, dtype="int32"), "count": zero}

    def log_prob(self, example, tokens, bos_id=0):
        """Sum of log-probabilities of a sequence, in float32 as the search sums it."""
        total, hashed, last = np.float32(0), 0, bos_id
        for token in tokens:
            hashed = self.next_hash(hashed, last)
            total, last = np.float32(total + self.table[example, hashed, token]), token
        return total

    def beam_search(
        self, example, beams, n, limit, *, eos_id, min_length, banned_ids, prefix, alpha, offset,
        slots=(), due=(),
    ):  # fmt: skip
        """The n best `[(tokens, log_prob, score)]`, with lists; it never ends early.

        Of the `slots`, each that is `due` comes once, and only these.
        """
        live, finished = [()], [] if limit else [((), 0.0, 0.0)]
        for length in range(1, limit + 1):
            never = {0, *banned_ids, *slots, *(eos_id if length < min_length else ())}
            ways = []
            for tokens in live:
                still = {*due} - {*tokens}
                free = ({*range(self.vocab)} - never | still) - ({*eos_id} if still else set())
                allowed = prefix[length - 1 : length] or free
                ways += [(*tokens, token) for token in allowed]
            ranked = [(self.log_prob(example, way), way) for way in ways]
            ranked = sorted((r for r in ranked if r[0] > -np.inf), reverse=True)[: 2 * beams]
            live = []
            for rank, (log_prob, way) in enumerate(ranked):
                if (way[-1] not in eos_id or length <= len(prefix)) and length < limit:
                    live.append(way)
                elif rank < beams:
                    score = log_prob / ((offset + length) / (offset + 1)) ** alpha
                    finished.append((way, log_prob, score))
            # Greedy decoding looks at no other token than the best.
            live = [] if beams == 1 and finished else live[:beams]
        return sorted(finished, key=lambda entry: -entry[2])[:n]


class HashStep(DecodingStep):
    """A `HashModel` whose tables are a source: part of the state, and not of its rows."""

    def __init__(self, model, beams, shrinks):
        self.model, self.num_beams, self.shrinks = model, beams, shrinks

    def start(self):
        rows = self.model.batch * self.num_beams
        return {"hash": ops.zeros(rows, dtype="int32"), "source": self.model.table}

    def next(self, tokens, state):
        model, hashed = self.model, self.model.next_hash(state["hash"], tokens)
        example = ops.arange(ops.shape(hashed)[0], dtype="int32") // self.num_beams
        flat = ops.reshape(state["source"], (-1, model.vocab))
        log_probs = ops.take(flat, hashed + example * model.buckets, axis=0)
        return log_probs, {**state, "hash": hashed}

    def reorder(self, state, rows):
        return {**state, "hash": ops.take(state["hash"], rows, axis=0)}

    def select_examples(self, state, examples):
        hashes = ops.reshape(state["hash"], (-1, self.num_beams))
        hashes = ops.reshape(ops.take(hashes, examples, axis=0), (-1,))
        return {"hash": hashes, "source": ops.take(state["source"], examples, axis=0)}


def hypotheses(result, example):
    """`[(tokens, log_prob, score)]` of one example, and a check that padding follows them."""
    ids, lengths, log_probs, scores = (np.array(field)[example] for field in result)
    found = []
    for row, length, log_prob, score in zip(ids, lengths, log_probs, scores, strict=True):
        assert not row[length:].any()
        found.append((tuple(int(token) for token in row[:length]), float(log_prob), float(score)))
    return found


def assert_same(found, expected, examples, others=None):
    """Equal hypotheses of some examples, in the expected result those of `others`."""
    for example, other in zip(examples, examples if others is None else others, strict=True):
        one, two = hypotheses(found, example), hypotheses(expected, other)
        assert [h[0] for h in one] == [h[0] for h in two]
        np.testing.assert_allclose([h[1:] for h in one], [h[1:] for h in two], atol=1e-4)
