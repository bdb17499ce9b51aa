"""The search of a translator, in the graph: from texts to ids, to their best translations."""

import functools

import tensorflow as tf

from keras_tfmr import decoding
from keras_tfmr.text.protection import is_blank
from keras_tfmr.text_models.text_model import traced


class TextSearch:
    """From texts with slots to translations with slots, by a model and its tokenizers.

    Args:
        model: The model of a `Translator`.
        source_tokenizer, target_tokenizer: Those of the model.
        config: A `DecodingConfig`.
        max_source_length: Maximum tokens of a text, its end id included.
        candidates: The `CandidateSearch` of `translations`; None for the whole vocabulary.
    """

    def __init__(
        self, model, source_tokenizer, target_tokenizer, config, max_source_length, candidates
    ):
        self.model, self.config, self.max_source_length = model, config, max_source_length
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer
        ids, n = ([None, None], tf.int32), ([], tf.int32)
        inputs = {"source_ids": ids, "max_lengths": tf.int32, "num_certain": n}
        self._search = traced(self._search_graph, **inputs)
        self._search_candidates = self._search
        if candidates is not None:
            among = functools.partial(candidates, config=config)
            self._search_candidates = traced(among, **inputs)
        self.translations = traced(self._translations_graph, text="string", n=n)

    def read(self, text):
        """Strings [batch] -> ids [batch, source], and whether they were cut [batch]."""
        return self.source_tokenizer.encode_truncated(text, self.max_source_length)

    def best(self, text, source_ids):
        """The `DecodingResult` of texts and their ids, whose first hypotheses are certain."""
        return self._decode(text, source_ids, 1, self._search)

    def _translations_graph(self, text, n):
        """`text` string [batch] with slots, `n` int32 -> its n best translations, with slots.

        Returns string and float32 [batch, n], and bool [batch]: whether the text was cut.
        """
        source_ids, truncated = self.read(text)
        result = self._decode(text, source_ids, n, self._search_candidates)
        ids, scores = result.ids[:, :n], result.scores[:, :n]
        flat = tf.reshape(ids, [-1, ids.shape[-1]])  # [batch * n, length]
        translations = tf.reshape(self.target_tokenizer.decode(flat), tf.shape(scores))
        return translations, scores, truncated

    def _decode(self, text, source_ids, num_certain, search):
        """Decodes the ids of texts by one of the searches; the first results of each are certain.

        A blank text costs no step: its maximum length is 0, so it has only the empty hypothesis,
        with score 0.
        """
        lengths = tf.reduce_sum(tf.cast(source_ids != 0, tf.int32), axis=1)
        max_lengths = tf.where(is_blank(text), 0, self.config.max_lengths(lengths))
        return search(source_ids, max_lengths, num_certain)

    def _search_graph(self, source_ids, max_lengths, num_certain):
        """From ids and maximum lengths to the `DecodingResult`."""
        config, target = self.config, self.target_tokenizer
        examples = decoding.Examples(
            tf.fill(tf.shape(max_lengths), target.bos_id),
            target.eos_id,
            decoding.banned_ids(target),
            max_lengths=max_lengths,
            **decoding.slots_due(source_ids, self.source_tokenizer.slot_ids, target.slot_ids),
        )
        return decoding.search(
            *self.model.start(source_ids, config.num_beams, max_length=config.max_length),
            config,
            examples,
            num_certain=num_certain,
        )
