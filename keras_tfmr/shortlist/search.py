"""The search among candidates, in their own numbering, which `decoding` does not know of.

The candidates of a request are those of all its texts. A token of the search is a place among them:
first padding, start, end and slots, at places that are known when the graph is built; then the
candidates of every translation; then those of the request, ascending. The step turns places into
ids where it embeds the last token, and the result is looked up once, at the end. What is no
candidate of a text itself has probability 0 for it, so that its answer does not depend on others.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_tfmr import decoding
from keras_tfmr.compat import take
from keras_tfmr.finished.candidates import without_head
from keras_tfmr.models.model_step import log_of_sum

PADDING, START, END, SLOTS = range(4)  # places; the slots are the first of several


class Candidates(NamedTuple):
    """The candidates of a request.

    Fields:
        ids: int32 `[n]`, by their place.
        own: float32 `[batch, n]`: 0 for the candidates of a text itself, else minus infinity.
    """

    ids: tf.Tensor
    own: tf.Tensor


class CandidateSearch(tf.Module):
    """Translates source ids with a finished model, by a search among candidates.

    Args:
        model: A `TranslationModel` of `optimize_for_decoding`.
        shortlist: A `Shortlist`.
        source_tokenizer, target_tokenizer: The tokenizers of the model.

    Raises:
        ValueError: If the shortlist has other ids than the model, or the model no head that is
            known.
    """

    def __init__(self, model, shortlist, source_tokenizer, target_tokenizer):
        super().__init__()
        self.model, self.head = without_head(model)
        check_ids(shortlist, source_tokenizer.vocab_size, model.vocab_size)
        self.source_slots, self.target_slots = source_tokenizer.slot_ids, target_tokenizer.slot_ids
        self.vocab_size, self.bounded = model.vocab_size, model.bounded
        first = [target_tokenizer.pad_id, target_tokenizer.bos_id, target_tokenizer.eos_id]
        first += target_tokenizer.slot_ids
        banned = decoding.banned_ids(target_tokenizer)
        others = sorted({*shortlist.always.tolist()} - {*first, *banned})
        self.fixed = np.array([*first, *others], "int32")
        table = np.where(np.isin(shortlist.table, [*self.fixed, *banned]), 0, shortlist.table)
        table[PADDING] = 0  # a text does not see its neighbours' length
        self.table = tf.Variable(table, trainable=False, name="shortlist")

    def candidates(self, source_ids):
        """The `Candidates` of source ids int32 `[batch, source]`, padded with 0."""
        batch = tf.shape(source_ids)[0]
        mine = tf.reshape(take(self.table, source_ids), [batch, -1])  # [batch, source * k]
        size = tf.size(mine)
        shape = [self.vocab_size]
        seen = tf.scatter_nd(tf.reshape(mine, [-1, 1]), tf.ones([size], tf.int32), shape)
        found = tf.cast(tf.where(seen[1:] > 0)[:, 0], tf.int32) + 1  # [n], ascending; not padding
        count = tf.size(found)
        number = tf.scatter_nd(found[:, None], 1 + tf.range(count), shape)  # 0: none of them
        rows = tf.repeat(tf.range(batch), tf.shape(mine)[1])
        cells = tf.stack([rows, tf.reshape(take(number, mine), [-1])], axis=1)
        own = tf.scatter_nd(cells, tf.ones([size], tf.int32), tf.stack([batch, 1 + count]))[:, 1:]
        never = np.where(np.arange(len(self.fixed)) < END, -np.inf, 0.0).astype("float32")
        own = tf.where(own > 0, 0.0, np.float32(-np.inf))
        own = tf.concat([tf.tile(never[None], [batch, 1]), own], axis=1)
        return Candidates(tf.concat([self.fixed, found], 0), own)

    def __call__(self, source_ids, max_lengths, num_certain, config):
        """The `DecodingResult` of source ids.

        Args:
            source_ids: int32 `[batch, source]`, padded with 0.
            max_lengths: int32 `[batch]`.
            num_certain: As for `decoding.search`.
            config: A `DecodingConfig`.
        """
        candidates = self.candidates(source_ids)
        slots = range(SLOTS, SLOTS + len(self.target_slots))
        examples = decoding.Examples(
            tf.fill(tf.shape(max_lengths), START),
            END,
            (START,),
            max_lengths=max_lengths,
            **decoding.slots_due(source_ids, self.source_slots, slots),
        )
        step, state = self.model.start(source_ids, config.num_beams, max_length=config.max_length)
        result = decoding.search(
            CandidateStep(step, candidates.ids, self.head.chosen(candidates.ids), self.bounded),
            {"model": state, "own": candidates.own},
            config,
            examples,
            num_certain=num_certain,
        )
        return result._replace(ids=take(candidates.ids, result.ids))


def check_ids(shortlist, source_vocab, target_vocab):
    """Raises a ValueError if the ids of a shortlist are not those of a model."""
    found = (
        len(shortlist.table),
        max(shortlist.table.max(initial=0), shortlist.always.max(initial=0)),
    )
    if found[0] != source_vocab or found[1] >= target_vocab:
        raise ValueError(
            f"The shortlist must be of {source_vocab} source ids and target ids below "
            f"{target_vocab}. Received: {found[0]} source ids, target ids up to {found[1]}"
        )


class CandidateStep(decoding.DecodingStep):
    """The step of a model over candidates: a token is a place among them.

    Args:
        step: The `CachedStep` of a model without its head.
        ids: int32 `[n]`, the candidates.
        head: A function from vectors float32 `[rows, width]` to logits `[rows, n]`.
        bounded: Whether no logit's exp() can overflow.

    The state is that of the step, `model`; and `own`, that of the `Candidates`.
    """

    def __init__(self, step, ids, head, bounded):
        self.step, self.ids, self.head, self.bounded = step, ids, head, bounded
        self.num_beams, self.max_length, self.shrinks = step.num_beams, step.max_length, True

    def next(self, tokens, state):
        logits, normaliser, state = self.unnormalised(tokens, state)
        return logits - normaliser, state

    def unnormalised(self, tokens, state):
        vectors, of_model = self.step.outputs(take(self.ids, tokens), state["model"])
        logits, count = self.head(vectors), tf.size(self.ids)
        if self.num_beams == 1:
            logits += state["own"]
        else:
            of_examples = tf.reshape(logits, [-1, self.num_beams, count])
            logits = tf.reshape(of_examples + state["own"][:, None], [-1, count])
        return logits, log_of_sum(logits, self.bounded), {**state, "model": of_model}

    def reorder(self, state, rows):
        return {**state, "model": self.step.reorder(state["model"], rows)}

    def select_examples(self, state, examples):
        return {
            "model": self.step.select_examples(state["model"], examples),
            "own": take(state["own"], examples),
        }
