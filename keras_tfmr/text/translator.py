"""Translators: a trained model with its tokenisers, from lists of texts to translations."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfmr._inputs import Text, checked_pairs
from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.models import TranslationModel
from keras_tfmr.text.graph import TextGraph
from keras_tfmr.text.lexicon import Lexicon
from keras_tfmr.text.text_model import TextModel, traced
from keras_tfmr.text.tokenizer import SubwordTokenizer


class Translation(NamedTuple):
    """A translation and its score, the log-probability divided by the length penalty."""

    text: str
    score: float


class Likelihood(NamedTuple):
    """The log-probability of a given text, in nats, and the number of tokens it is summed over."""

    log_prob: float
    tokens: int


class Explanation(NamedTuple):
    """What each token of a translation attended to.

    Fields:
        source_tokens: A list of strings.
        target_tokens: A list of strings, the end of the sentence included.
        attention: float32 `[layers, heads, target, source]`; each row over the source sums to 1.
        encoder_attention: float32 `[layers, heads, source, source]`, or None if the model has none.
        decoder_attention: float32 `[layers, heads, target, target]`, or None if the model has none.

    Column s of the decoder's attention is the token before target token s, the start id for s = 0.
    """

    source_tokens: list[str]
    target_tokens: list[str]
    attention: np.ndarray
    encoder_attention: np.ndarray | None = None
    decoder_attention: np.ndarray | None = None


class Translator(TextModel):
    """Translates lists of strings with a model, its tokenisers and a decoding config.

    The translation of a text without visible characters is empty.

    Args:
        model: A translation model with `start` and `explain`, such as `TranslationModel`.
        source_tokenizer: A `SubwordTokenizer` for the texts.
        target_tokenizer: A `SubwordTokenizer` for the translations; the same by default.
        config: A `DecodingConfig`.
        max_source_length: The most tokens of a text, its end id included; a longer text is cut.
        xla: Whether XLA compiles the decoder, once for each pair of a batch size and a source
            length up to which batches are padded.
        lexicon: A `Lexicon`. Translations are then searched for among the target subwords that it
            makes likely, which takes less time; None for the whole vocabulary.

    Raises:
        RuntimeError: If Keras does not run on TensorFlow.
        ValueError: If vocabularies, lengths or lexicon do not fit the model.

    >>> from keras_tfmr import SubwordTokenizer, TransformerConfig, TranslationModel
    >>> tokenizer = SubwordTokenizer.learn(["o gato preto", "the black cat"] * 9, vocab_size=300)
    >>> size = tokenizer.vocab_size
    >>> config = TransformerConfig.preset("tiny", source_vocab=size, target_vocab=size)
    >>> translator = Translator(TranslationModel(config), tokenizer)
    >>> translator.translate(["", "  "])
    ['', '']
    """

    default = "translate"

    def __init__(
        self,
        model: keras.Model,
        source_tokenizer: SubwordTokenizer,
        target_tokenizer: SubwordTokenizer | None = None,
        config: DecodingConfig | None = None,
        *,
        max_source_length: int = 128,
        xla: bool = False,
        lexicon: Lexicon | None = None,
    ) -> None:
        tokenizers = {"source": source_tokenizer, "target": target_tokenizer or source_tokenizer}
        super().__init__(model, tokenizers, max_source_length, xla)
        self.source_tokenizer, self.target_tokenizer = tokenizers.values()
        self.config = config or DecodingConfig()
        self.max_source_length, self.lexicon = max_source_length, lexicon
        self._check()
        self.graph = TextGraph(
            model,
            self.source_tokenizer,
            self.target_tokenizer,
            self.config,
            max_source_length,
            xla=xla,
            lexicon=lexicon,
        )
        self.tables = [] if lexicon is None else [lexicon.candidates]
        self.signatures = {
            "translate": traced(self.graph.translate, text=tf.string),
            "translate_nbest": traced(self.graph.translate_nbest, text=tf.string),
            "score": traced(self.graph.score, text=tf.string, reference=tf.string),
            "explain": traced(self.graph.explain, text=tf.string),
        }

    def _check(self):
        for side, tokenizer in self.tokenizers.items():
            self._check_vocabulary(f"{side}_vocab", tokenizer, f"{side} ")
        self._check_positions(
            max(self.max_source_length, self.config.max_length),
            f"max_source_length={self.max_source_length}, "
            f"config.max_length={self.config.max_length}",
        )
        if self.lexicon is not None:
            self._check_lexicon()

    def _check_lexicon(self):
        if not isinstance(self.model, TranslationModel):
            raise ValueError(
                f"A lexicon needs a TranslationModel. Received: {type(self.model).__name__}"
            )
        sizes = {side: getattr(self.model.config, f"{side}_vocab") for side in self.tokenizers}
        if (received := self.lexicon.sizes) != (sizes["source"], sizes["target"]):
            raise ValueError(
                "The lexicon must be learned with the model's vocabularies. Received: "
                f"{received} ids in the lexicon, {tuple(sizes.values())} in the model"
            )

    def arguments(self) -> dict[str, Any]:
        return {
            "source_tokenizer": self.source_tokenizer,
            "target_tokenizer": self.target_tokenizer,
            "config": self.config,
            "max_source_length": self.max_source_length,
            "lexicon": self.lexicon,
        }

    def untied(self) -> Self:
        # The rows of a shortlist are transposed in as little time as its columns are picked.
        return self if self.lexicon is not None else super().untied()

    def request(self, signature: str, texts: Sequence[Text]) -> dict[str, list[Any]]:
        texts = list(texts)
        return {"text": texts, **({"reference": texts[::-1]} if signature == "score" else {})}

    def answers_when_rounded(self, signature: str) -> tuple[str, ...] | None:
        return ("source_tokens",) if signature == "explain" else None

    def to_metadata(self) -> dict[str, Any]:
        return {
            "decoding": self.config.to_dict(),
            "max_source_length": self.max_source_length,
            "shortlist": self.lexicon is not None,
            "source_length_buckets": list(self.length_buckets) if self.xla else None,
        }

    def translate(self, texts: Iterable[Text], batch_size: int = 32) -> list[str]:
        """The best translation of each text.

        Args:
            texts: A list of strings.
            batch_size: The number of texts in a batch; texts of similar length share a batch.

        Returns:
            A list of strings, in the order of `texts`.
        """
        rows = self._rows("translate", texts, batch_size=batch_size)
        return [row["translation"].decode() for row in rows]

    def translate_nbest(
        self, texts: Iterable[Text], batch_size: int = 32
    ) -> list[list[Translation]]:
        """The `config.num_return_sequences` best translations of each text.

        Args:
            texts: A list of strings.
            batch_size: The number of texts in a batch; texts of similar length share a batch.

        Returns:
            A list of lists of `Translation`, best first; there can be fewer than
            `config.num_return_sequences`.
        """
        found = []
        for row in self._rows("translate_nbest", texts, batch_size=batch_size):
            pairs = zip(row["translations"], row["scores"], strict=True)
            found.append(
                [
                    Translation(text.decode(), float(score))
                    for text, score in pairs
                    if score > tf.float32.min
                ]
            )
        return found

    def score(
        self, texts: Iterable[Text], references: Iterable[Text], batch_size: int = 32
    ) -> list[Likelihood]:
        """The log-probabilities of given translations.

        Args:
            texts: A list of strings.
            references: A list of translations, one for each text.
            batch_size: The number of texts in a batch; texts of similar length share a batch.

        Returns:
            A list of `Likelihood`.

        Raises:
            ValueError: If there are more or fewer references than texts.
        """
        texts, references = checked_pairs(texts, references)
        rows = self._rows("score", texts, references, batch_size=batch_size)
        return [Likelihood(float(row["log_prob"]), int(row["tokens"])) for row in rows]

    def explain(self, texts: Iterable[Text], batch_size: int = 32) -> list[Explanation]:
        """What each token of each translation attended to.

        Args:
            texts: A list of strings.
            batch_size: The number of texts in a batch; texts of similar length share a batch.

        Returns:
            A list of `Explanation`, without padding.
        """
        explanations = []
        for row in self._rows("explain", texts, batch_size=batch_size):
            source = [token.decode() for token in row["source_tokens"] if token]
            target = [token.decode() for token in row["target_tokens"] if token]
            n, m = len(target), len(source)
            sizes = {"attention_heads": (n, m), "encoder_heads": (m, m), "decoder_heads": (n, n)}
            heads: list[Any] = [
                row[name][:, :, :queries, :keys] if name in row else None
                for name, (queries, keys) in sizes.items()
            ]
            explanations.append(Explanation(source, target, *heads))
        return explanations
