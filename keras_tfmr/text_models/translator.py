"""Translators: a trained model with its tokenizers, from lists of texts to translations."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import keras
import tensorflow as tf

from keras_tfmr import decoding
from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.models import TranslationModel
from keras_tfmr.shortlist import Shortlist
from keras_tfmr.shortlist.search import CandidateSearch
from keras_tfmr.signatures import signature as signatures
from keras_tfmr.signatures.answers import Document, Explanation, Likelihood, Translation
from keras_tfmr.signatures.inputs import pairs_of, terms_of, text_of, utf8
from keras_tfmr.text.protection import Protection, protect_alike
from keras_tfmr.text.sentences import SentenceSplitter, list_of
from keras_tfmr.text.strings import Text
from keras_tfmr.text.terms import parted, with_terms
from keras_tfmr.text.tokenizer import Tokenizer, valid_utf8
from keras_tfmr.text_models.attention import attention_outputs
from keras_tfmr.text_models.document import translated_document
from keras_tfmr.text_models.text_model import BATCH, TextModel, shifted
from keras_tfmr.text_models.text_search import TextSearch


@keras.saving.register_keras_serializable(package="keras_tfmr")
class Translator(TextModel):
    """Translates lists of strings with a model, its tokenizers and a decoding config.

    Its calls take a list of str or bytes and return a list with an answer for each, in order. The
    translation of a text without visible characters is empty, with score 0.

    Every protected span of a text appears in its translation unchanged, as often as in the text:
    where the model puts it, or at the end if the translation reaches its maximum length before. Of
    more than 16 spans, the first 16 are protected, the others translated as text, and `truncated`
    is True.

    Args:
        model: A `TranslationModel`, ready or your own, of source ids and target ids, in this order;
            or another model with its `start` and `explain`, as those of `keras_tfmr.recurrent`.
        source_tokenizer: A `SubwordTokenizer` for the texts.
        target_tokenizer: A `SubwordTokenizer` for the translations; the same by default.
        config: A `DecodingConfig`.
        max_source_length: Maximum tokens of a text, its end id included; a longer one is cut.
        languages: The codes of source and target, as in ("pt", "en"), for abbreviations, the
            sentences that calibrate int8 by default, and the demo page; "" for one without a code.
        abbreviations: Words after which a full stop does not end a sentence of a document: a file,
            or a list; by default the list of the source's language, if there is one.
        protect: Spans that stay as they are: names ("code", "tag", "url", "email", "placeholder",
            "option", "number") and patterns in RE2's syntax. None: all names except "number" if
            both vocabularies have the `SLOTS` for it, else nothing.

    Raises:
        RuntimeError: If Keras does not run on TensorFlow.
        ValueError: If vocabularies or lengths do not fit the model, a pattern is wrong, or the
            vocabularies have no slots for what to protect.

    >>> from keras_tfmr import SubwordTokenizer, Transformer, TransformerConfig
    >>> tokenizer = SubwordTokenizer.learn(["o gato preto", "the black cat"] * 9, vocab_size=300)
    >>> size = tokenizer.vocab_size
    >>> config = TransformerConfig.preset("tiny", source_vocab=size, target_vocab=size)
    >>> translator = Translator(Transformer(config), tokenizer)
    >>> translator.translate([" "])
    [Translation(text='', score=0.0, truncated=False)]
    """

    of_search = tuple(DecodingConfig().to_dict())
    options = (*of_search, "max_source_length", "languages", "abbreviations", "protect", "language")
    formats = ("saved_model", "ctranslate2", "transformers")

    def __init__(
        self,
        model: keras.Model,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer | None = None,
        config: DecodingConfig | None = None,
        *,
        max_source_length: int = 128,
        languages: Sequence[str] = ("", ""),
        abbreviations: str | os.PathLike[str] | Iterable[str] | None = None,
        protect: Sequence[str] | None = None,
    ) -> None:
        tokenizers = {"source": source_tokenizer, "target": target_tokenizer or source_tokenizer}
        super().__init__(model, tokenizers, max_source_length)
        self.source_tokenizer, self.target_tokenizer = tokenizers.values()
        self.config = config or DecodingConfig()
        self.max_source_length = max_source_length
        if isinstance(languages, str) or len(languages) != 2:
            raise ValueError(f"languages must be two codes. Received: {languages!r}")
        self.languages = (languages[0], languages[1])
        self.has_own_abbreviations = abbreviations is not None
        words = abbreviations if self.has_own_abbreviations else list_of(self.languages[0])
        self.splitter = SentenceSplitter(words)
        self.protection = Protection(protect, tokenizers.values())
        self._check()
        self._into: dict[str, Self] = {}
        self.candidate_search: CandidateSearch | None = None
        self._trace()

    def _trace(self):
        self._search = TextSearch(
            self.model, *self.sides(), self.config, self.max_source_length, self.candidate_search
        )
        with_slots = [(signatures.TRANSLATE_WITH_TERMS, self._translate_with_terms)]
        self._serve(
            (signatures.TRANSLATE, self._translate),
            (signatures.TRANSLATE_NBEST, self._translate_nbest),
            (signatures.TRANSLATE_DOCUMENT, self._translate_document),
            (signatures.SCORE, self._score),
            (signatures.EXPLAIN, self._explain),
            *(with_slots if self.protection.possible else ()),
        )

    def _check(self):
        model = self.model
        if not (hasattr(model, "start") and hasattr(model, "explain")):
            raise ValueError(
                "The model must be a TranslationModel, or another with its `start` and `explain`. "
                f"Received: {type(model).__name__} {model.name!r}"
            )
        if isinstance(model, TranslationModel):
            dtypes = [tensor.dtype for tensor in model.inputs]
            if dtypes != ["int32", "int32"] or model.target_place != 1:
                raise ValueError(
                    "The model must have two inputs of int32 ids, source and target in this order. "
                    f"Received: {[f'{tensor.name} {tensor.dtype}' for tensor in model.inputs]}"
                )
            source, target = model.inputs
            for layer in model.layers:
                if hasattr(layer, "vocab_size") and layer.input is source:
                    self._check_vocabulary(layer.vocab_size, self.source_tokenizer, "source ")
            self._check_vocabulary(model.vocab_size, self.target_tokenizer, "target ")
            lengths = {source.name: self.max_source_length, target.name: self.config.max_length}
            model.check_lengths(**lengths)
        elif isinstance(model, keras.Model):  # of keras_tfmr.recurrent
            self._check_vocabulary(model.config.source_vocab, self.source_tokenizer, "source ")
            self._check_vocabulary(model.config.target_vocab, self.target_tokenizer, "target ")

    def get_config(self) -> dict[str, Any]:
        search = self.config.to_dict()
        if search["num_return_sequences"] == search["num_beams"]:
            del search["num_return_sequences"]  # as many as there are beams, whatever their number
        return search | {
            "max_source_length": self.max_source_length,
            "languages": [*self.languages],
            "abbreviations": sorted(self.splitter.words) if self.has_own_abbreviations else None,
            "protect": self.protection.protect,
        }

    @classmethod
    def _made_of(cls, config, model, source, target):
        if language := config.pop("language", None):
            source = source.into(language)
            config["languages"] = [config.get("languages", ("", ""))[0], language]
        search = {"num_return_sequences": config.get("num_beams", DecodingConfig.num_beams)}
        search |= {name: config.pop(name) for name in cls.of_search if name in config}
        return cls(model, source, target, DecodingConfig(**search), **config)

    def sides(self) -> tuple[Any, Any]:
        return self.source_tokenizer, self.target_tokenizer

    def translate(
        self, texts: Iterable[Text], batch_size: int = BATCH, *, language: str | None = None
    ) -> list[Translation]:
        """The best translation of each text, a str with a score.

        Texts of similar length are translated `batch_size` at a time; `language` is one of several
        target languages: see `into`.
        """
        translator = self if language is None else self.into(language)
        return translator._ask(signatures.TRANSLATE, text_of(texts), batch_size)

    def translate_nbest(
        self, texts: Iterable[Text], batch_size: int = BATCH
    ) -> list[list[Translation]]:
        """The `num_return_sequences` best translations of each text, or fewer, best first."""
        return self._ask(signatures.TRANSLATE_NBEST, text_of(texts), batch_size)

    def translate_document(self, texts: Iterable[Text]) -> list[Document]:
        """The translation of each text sentence by sentence, whatever its length.

        All sentences of all texts are translated in batches of similar length; the source's white
        space stays between them. A text of one sentence gets the answer of `translate`.
        """
        inputs = text_of(texts)
        return self._ask(signatures.TRANSLATE_DOCUMENT, inputs, max(len(inputs["text"]), 1))

    def translate_with_terms(
        self, texts: Iterable[Text], terms: Mapping[str, str], batch_size: int = BATCH
    ) -> list[Translation]:
        """The best translation of each text, with given translations of terms.

        Where a term stands in a text as whole words, the translation has the given one, to the
        letter. Lower-case terms match any case; others match exactly. The longest match wins.
        Protected spans are not searched for terms.

        Raises:
            TypeError: If a term or translation is no str.
            ValueError: If a term is blank, a term or translation has a line break, a term has a tab
                or a character from U+E000 to U+EFFF, the terms that a text may have take more than
                8192 bytes, or the model has no slots for them.
        """
        if not self.protection.possible:
            raise ValueError("translate_with_terms needs a model with slots: train with --protect")
        return self._ask(signatures.TRANSLATE_WITH_TERMS, terms_of(texts, terms), batch_size)

    def score(
        self, texts: Iterable[Text], references: Iterable[Text], batch_size: int = BATCH
    ) -> list[Likelihood]:
        """The log-probability of each reference as the translation of its text."""
        return self._ask(signatures.SCORE, pairs_of(texts, references), batch_size)

    def explain(self, texts: Iterable[Text], batch_size: int = BATCH) -> list[Explanation]:
        """The attention of each token of each translation, by layer and head."""
        return self._ask(signatures.EXPLAIN, text_of(texts), batch_size)

    def with_shortlist(self, shortlist: Shortlist) -> Self:
        """A copy that translates with the few target ids that each text may need.

        `score` and `explain` use the whole vocabulary.

        Args:
            shortlist: The output of `learn_shortlist`.

        Raises:
            ValueError: If the model is not one of `for_decoding`, or the shortlist not for it.
        """
        copy = self.replace()
        copy.candidate_search = CandidateSearch(self.model, shortlist, *self.sides())
        copy._trace()
        return copy

    def replace(
        self, *, model: keras.Model | None = None, precision: str | None = None, **options: Any
    ) -> Self:
        copy = super().replace(model=model, precision=precision, **options)
        if copy.model is self.model:  # the shortlist belongs to the model
            copy.candidate_search = self.candidate_search
            copy._trace()
        return copy

    def into(self, language: str) -> Self:
        """A translator into one of the model's target languages, for texts without a tag.

        Exports, and calls other than `translate`, need one; it shares this one's model. Each
        language is traced once. A ValueError unless `language` is one of
        `source_tokenizer.target_languages`.
        """
        if language not in self._into:
            self._into[language] = self.replace(language=language)
        return self._into[language]

    def _ask(self, signature, inputs, batch_size):
        if untagged := self.source_tokenizer.untagged(inputs["text"]):
            raise ValueError(
                "the model has several target languages: choose a `language` of "
                f"{', '.join(self.source_tokenizer.target_languages)}. Received none for the text "
                f"{inputs['text'][untagged[0]].decode()!r:.80}"
            )
        return self._answers(signature, inputs, batch_size)

    def calibration_inputs(self, texts: Sequence[Text]) -> list[Any]:
        texts, inputs = [utf8(text) for text in self.source_tokenizer.tagged(texts)], []
        for start in range(0, len(texts), BATCH):
            batch = self.protection.slotted(tf.constant(texts[start : start + BATCH])).texts
            source_ids, _ = self._search.read(batch)
            result = self._search.best(batch, source_ids)
            # Read again, as `score` reads a translation: its subwords may be others.
            target = self.target_tokenizer
            translations = target.decode(result.ids[:, 0])
            target_ids, _ = target.encode_truncated(translations, self.config.max_length)
            inputs.append([source_ids, shifted(target_ids, target.bos_id)])
        return inputs

    def _translate(self, text):
        """`text` string -> `translation` string, `score` float32, `truncated` bool, all [batch].

        The score is the log-probability divided by the length penalty. A text without visible
        characters has an empty translation with score 0.
        """
        return self._best(self.protection.slotted(text))

    def _translate_with_terms(self, text, terms):
        """`text`, `terms` string [batch] -> as `_translate`.

        `terms` are those of each text, in lines: a term, a tab, its translation. A term that stands
        in its text as whole words has this translation. One without a capital letter is found in
        any case. A line without a tab, one with a blank term, and what exceeds 8192 bytes are
        passed over.
        """
        terms = tf.ensure_shape(terms, [None])
        outputs = self._best(with_terms(*self.protection.taken_out(text), terms))
        return outputs | {"translation": parted(outputs["translation"])}

    def _best(self, slotted):
        """The outputs of `_translate` for a `Slotted`."""
        translations, scores, truncated = self._search.translations(slotted.texts, 1)
        return {
            "translation": slotted.restored(translations[:, 0]),
            "score": scores[:, 0],
            "truncated": truncated | slotted.crowded,
        }

    def _translate_nbest(self, text):
        """`text` string [batch] -> `translations` string, `scores` float32, both [batch, n].

        `truncated` bool [batch] is as in `_translate`. The best translation comes first. If there
        are fewer than n, the others are empty and their score is the lowest float32.
        """
        n = self.config.num_return_sequences
        slotted = self.protection.slotted(text)
        translations, scores, truncated = self._search.translations(slotted.texts, n)
        restored = slotted.repeated(n).restored(tf.reshape(translations, [-1]))
        restored = tf.reshape(restored, tf.shape(scores))
        return {
            "translations": tf.where(tf.math.is_inf(scores), "", restored),
            "scores": tf.maximum(scores, tf.float32.min),
            "truncated": truncated | slotted.crowded,
        }

    def _translate_document(self, text):
        """`text` string -> `translation` string, `sentences` int32, `truncated` bool, all [batch].

        Too long a sentence is cut, and counts as several; `truncated` is true if even a word was.
        `source_pieces` and `target_pieces` string [batch, pieces] are the sentences and what is
        between them, of the text and of its translation, padded with empty strings.
        """

        def translate(sentences):
            translations, _, truncated = self._search.translations(sentences, 1)
            return translations[:, 0], truncated

        return translated_document(
            text,
            translate,
            self.splitter,
            self.protection,
            self.source_tokenizer,
            self.max_source_length,
        )

    def _score(self, text, reference):
        """`text`, `reference` string -> `log_prob` float32, `tokens` int32, `truncated` bool.

        All are [batch]. The log-probability of the reference as a translation of the text, summed
        over `tokens` tokens, the last of which is the end id. A reference that is longer than the
        maximum length of a translation is cut to it. `truncated` means that either was cut.
        """
        slotted = self.protection.slotted(text)
        reference = valid_utf8(tf.ensure_shape(reference, [None]))
        tf.debugging.assert_equal(
            tf.shape(text), tf.shape(reference), "text and reference must have the same batch size"
        )
        reference = protect_alike(reference, self.protection.pattern, slotted.spans)
        source_ids, truncated = self._search.read(slotted.texts)
        target = self.target_tokenizer
        target_ids, cut = target.encode_truncated(reference, self.config.max_length)
        logits = self.model([source_ids, shifted(target_ids, target.bos_id)], training=False)
        log_prob, tokens = decoding.score(logits, target_ids)
        truncated |= cut | slotted.crowded
        return {"log_prob": log_prob, "tokens": tokens, "truncated": truncated}

    def _explain(self, text):
        """`text` string [batch] -> `source_tokens`, `target_tokens` and `attention_outputs`.

        Tokens are strings [batch, source] and [batch, target], padded with empty ones.
        """
        text, spans, _ = self.protection.slotted(text)
        source_ids, _ = self._search.read(text)
        result = self._search.best(text, source_ids)
        longest = tf.maximum(tf.reduce_max(result.lengths), 1)
        target_ids = result.ids[:, 0, :longest]  # [batch, target]
        fed_ids = shifted(target_ids, self.target_tokenizer.bos_id)
        _, scores = self.model.explain(source_ids, fed_ids)
        return {
            "source_tokens": self.protection.shown(self.source_tokenizer, source_ids, spans),
            "target_tokens": self.protection.shown(self.target_tokenizer, target_ids, spans),
            **attention_outputs(scores, source_ids, target_ids, fed_ids),
        }
