"""The signatures of an exported translator, as functions of string tensors.

The same functions run in process and in a SavedModel, so that both give the same answers. XLA
compiles only the decoder, a function of integer tensors between the tokenisers.
"""

import functools

import tensorflow as tf

from keras_tfmr import decoding
from keras_tfmr.decoding.shortlist import END, START, Shortlist
from keras_tfmr.decoding.topk import GROUP
from keras_tfmr.text.buckets import (
    BATCH_BUCKETS,
    MOST_COMPILED,
    at_least_one,
    length_buckets,
    pad_to_buckets,
    rung,
    shifted,
)
from keras_tfmr.text.text_model import compiled

# Only separators and control characters, so that there is nothing to translate.
_BLANK = r"[\pZ\pC]*"

# XLA's shortlists have this many places for each position of a padded source: several times what
# most sources need. The plain graph decodes a source that needs more.
PLACES_PER_TOKEN = 32

# The score of a missing hypothesis. JSON has no minus infinity.
_NO_SCORE = tf.float32.min


def most_compiled(beams):
    """The most texts that XLA decodes together: those with `MOST_COMPILED` hypotheses, or one.

    With more, the plain graph is ahead, since it drops the texts that have ended.
    """
    return max(rows for rows in BATCH_BUCKETS if rows == 1 or rows * beams <= MOST_COMPILED)


class TextGraph:
    """A model, its tokenisers and a decoding config, as functions of string tensors.

    The first axis of all inputs and outputs is the batch. The answer for a text does not depend on
    the other texts. The functions can be called eagerly, in a `tf.function` and in a SavedModel.

    Args:
        model: A translation model with `start` and `explain`.
        source_tokenizer: The `SubwordTokenizer` for the texts.
        target_tokenizer: The `SubwordTokenizer` for the translations.
        config: A `DecodingConfig`.
        max_source_length: The most tokens of a text, its end id included; a longer text is cut and
            flagged.
        xla: Whether XLA compiles the decoder for batches of up to `most_compiled`. Batch size and
            source length are then padded up to a few sizes, each of which is compiled when it first
            occurs.
        lexicon: A `Lexicon` whose shortlists are searched instead of the whole vocabulary.
    """

    def __init__(
        self,
        model,
        source_tokenizer,
        target_tokenizer,
        config,
        max_source_length,
        xla=False,
        lexicon=None,
    ):
        self.model = model
        self.source, self.target = source_tokenizer, target_tokenizer
        self.config, self.max_source_length, self.xla = config, max_source_length, xla
        self.lexicon = lexicon
        self.length_buckets = length_buckets(max_source_length)
        # One function for all signatures, and so one program for each size of its input.
        inputs = dict(
            source_ids=([None, None], tf.int32), limits=([None], tf.int32), certain=([], tf.int32)
        )
        if lexicon is not None:
            inputs |= dict(ids=([None], tf.int32), allowed=([None, None], tf.bool))
        self._plain = compiled(self._search, False, **inputs)
        self._compiled = compiled(functools.partial(self._search, compiled=True), True, **inputs)
        self._decoder = self._compiled_if_few if xla else self._plain

    def translate(self, text):
        """`text` string -> `translation` string, `score` float32, `truncated` bool, all [batch].

        The score is the log-probability divided by the length penalty. A text without visible
        characters has an empty translation with score 0.
        """
        source_ids, truncated, blank = self._read(text)
        result = self._decode(source_ids, blank, certain=1)
        return {
            "translation": self.target.decode(result.ids[:, 0]),
            "score": result.scores[:, 0],
            "truncated": truncated,
        }

    def translate_nbest(self, text):
        """`text` string [batch] -> `translations` string, `scores` float32, both [batch, n].

        `truncated` bool [batch] is as in `translate`. The best translation comes first. If there
        are fewer than n, the others are empty and their score is the lowest float32.
        """
        source_ids, truncated, blank = self._read(text)
        result = self._decode(source_ids, blank, certain=self.config.num_return_sequences)
        flat = tf.reshape(result.ids, [-1, result.ids.shape[-1]])  # [batch * n, length]
        return {
            "translations": tf.reshape(self.target.decode(flat), tf.shape(result.scores)),
            "scores": tf.maximum(result.scores, _NO_SCORE),
            "truncated": truncated,
        }

    def score(self, text, reference):
        """`text`, `reference` string -> `log_prob` float32, `tokens` int32, `truncated` bool.

        All are [batch]. The log-probability of the reference as a translation of the text, summed
        over `tokens` tokens, the last of which is the end id. A reference that is longer than the
        maximum length of a translation is cut to it. `truncated` means that either was cut.
        """
        text, reference = tf.ensure_shape(text, [None]), tf.ensure_shape(reference, [None])
        tf.debugging.assert_equal(
            tf.shape(text), tf.shape(reference), "text and reference must have the same batch size"
        )
        source_ids, truncated, _ = self._read(text)
        target_ids, cut = self.target.encode_truncated(reference, self.config.max_length)
        target_ids = at_least_one(target_ids)  # [batch, target], end id included
        fed_ids = shifted(target_ids, self.target.start_id)
        logits = self.model([source_ids, fed_ids], training=False)
        log_prob, tokens = decoding.score(logits, target_ids)
        rows = tf.size(text)
        truncated = truncated | cut
        return {"log_prob": log_prob[:rows], "tokens": tokens[:rows], "truncated": truncated}

    def explain(self, text):
        """`text` string [batch] -> what each target token attended to.

        `source_tokens` string [batch, source] and `target_tokens` string [batch, target] are padded
        with empty strings. `attention_heads` float32 [batch, layers, heads, target, source] is the
        decoder's cross-attention, `attention` [batch, target, source] its mean over layers and
        heads; both are 0 where either token is padding. Row t holds the weights with which target
        token t was predicted. A Transformer also gives its two self-attentions: `encoder_heads`
        [batch, layers, heads, source, source], and `decoder_heads` [batch, layers, heads, target,
        target], whose column s is the token before target token s: the start id for s = 0.
        """
        source_ids, _, blank = self._read(text)
        result = self._decode(source_ids, blank, certain=1)
        source_ids = source_ids[: tf.size(blank)]
        longest = tf.maximum(tf.reduce_max(result.lengths), 1)
        target_ids = result.ids[:, 0, :longest]  # [batch, target]
        fed_ids = shifted(target_ids, self.target.start_id)
        _, scores = self.model.explain(source_ids, fed_ids)
        heads = _stacked(scores.cross, target_ids, source_ids)
        answer = {
            "source_tokens": self.source.pieces(source_ids),
            "target_tokens": self.target.pieces(target_ids),
            "attention": tf.reduce_mean(heads, axis=[1, 2]),
            "attention_heads": heads,
        }
        if scores.encoder:
            answer["encoder_heads"] = _stacked(scores.encoder, source_ids, source_ids)
        if scores.decoder:
            answer["decoder_heads"] = _stacked(scores.decoder, target_ids, fed_ids)
        return answer

    def _read(self, text):
        """Strings [batch] -> ids [rows, source], truncated [batch], blank [batch].

        An empty batch gets one row of padding, so that the layers never see an empty batch.
        """
        # The server does not check the rank of a request's inputs against the signature.
        text = tf.ensure_shape(text, [None])
        ids, truncated = self.source.encode_truncated(text, self.max_source_length)
        return at_least_one(ids), truncated, tf.strings.regex_full_match(text, _BLANK)

    def _decode(self, source_ids, blank, certain):
        """Decodes ids [rows, source]; the result is [batch, n, ...], its first `certain` certain.

        Blank rows and padding rows cost no step: their limit is 0, so they have only the empty
        hypothesis, with score 0.
        """
        rows = tf.size(blank)
        lengths = tf.reduce_sum(tf.cast(source_ids[:rows] != 0, tf.int32), axis=1)
        limits = tf.where(blank, 0, self.config.max_lengths(lengths))
        limits = tf.pad(limits, [[0, tf.shape(source_ids)[0] - rows]])
        result = self._decoder(source_ids, limits, tf.constant(certain), *self._listed(source_ids))
        return decoding.DecodingResult(*(field[:rows] for field in result))

    def _listed(self, source_ids):
        """The parts of the batch's shortlist, none without a lexicon."""
        if self.lexicon is None:
            return ()
        return self.lexicon.shortlist(
            source_ids,
            banned_ids=(self.target.unknown_id,),
            end_id=self.target.end_id,
            start_id=self.target.start_id,
            least=2 * self.config.num_beams * GROUP,
        )

    def _compiled_if_few(self, source_ids, *parts):
        """`_search`, by XLA for a batch of at most `most_compiled` and a shortlist that fits."""
        few = tf.shape(source_ids)[0] <= most_compiled(self.config.num_beams)
        if self.lexicon is not None:
            few &= tf.size(parts[2]) <= self._places(tf.shape(source_ids)[1])
        return tf.cond(
            few,
            lambda: self._padded(source_ids, *parts),
            lambda: self._plain(source_ids, *parts),
        )

    def _places(self, length):
        """The places of a shortlist that XLA is given for a source of this length."""
        return PLACES_PER_TOKEN * rung(length, self.length_buckets)

    def _padded(self, source_ids, limits, certain, ids=None, allowed=None):
        """`_search` by XLA, of tensors that it pads to one of a few sizes."""
        rows = tf.shape(source_ids)[0]
        source_ids = pad_to_buckets(source_ids, self.length_buckets)
        more_rows = tf.shape(source_ids)[0] - rows
        listed = ()
        if ids is not None:
            more_places = self._places(tf.shape(source_ids)[1]) - tf.size(ids)
            listed = (
                tf.pad(ids, [[0, more_places]]),
                tf.pad(allowed, [[0, more_rows], [0, more_places]]),
            )
        result = self._compiled(source_ids, tf.pad(limits, [[0, more_rows]]), certain, *listed)
        return decoding.DecodingResult(*(field[:rows] for field in result))

    def _search(self, source_ids, limits, certain, *listed, compiled=False):
        """From ids and limits to the `DecodingResult`."""
        config, ids = self.config, self.target
        start = {"num_beams": config.num_beams, "max_length": config.max_length}
        start_id, end_id, banned_ids = ids.start_id, ids.end_id, (ids.unknown_id, ids.start_id)
        if listed:
            start["shortlist"] = Shortlist(*listed)
            start_id, end_id, banned_ids = START, END, (START,)
        step, state = self.model.start(source_ids, **start)
        if compiled:
            step.shrinks = False
        result = config.decode(
            step,
            state,
            bos_ids=tf.fill(tf.shape(limits), start_id),
            eos_id=end_id,
            banned_ids=banned_ids,
            max_lengths=limits,
            num_certain=certain,
        )
        return start["shortlist"].restored(result) if listed else result


def _stacked(scores, query_ids, key_ids):
    """Scores of all layers, float32 [batch, layers, heads, query, key], 0 at padding."""
    heads = tf.cast(tf.stack(scores, axis=1), tf.float32)
    real = (query_ids != 0)[:, :, None] & (key_ids != 0)[:, None, :]
    return tf.where(real[:, None, None], heads, 0.0)
