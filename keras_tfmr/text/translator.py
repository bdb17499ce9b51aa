"""Lists of sentences in, lists of translations out, around a trained model."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.precision import with_precision
from keras_tfmr.text.graph import TextGraph
from keras_tfmr.text.tokenizer import SubwordTokenizer

Text = str | bytes


class Hypothesis(NamedTuple):
    """A translation and its length-normalised log-probability."""

    text: str
    score: float


class Likelihood(NamedTuple):
    """The log-probability of a given translation, summed over so many tokens."""

    log_prob: float
    tokens: int


class Explanation(NamedTuple):
    """What each token of a translation looked at.

    Fields:
        source_tokens: a list of strings.
        target_tokens: a list of strings, the end of the sentence included.
        attention: float32 `[layers, heads, target, source]`; each row over the source sums to 1.
        encoder_attention: float32 `[layers, heads, source, source]`, or None for a model without.
        decoder_attention: float32 `[layers, heads, target, target]`, or None; the start id first.
    """

    source_tokens: list[str]
    target_tokens: list[str]
    attention: np.ndarray
    encoder_attention: np.ndarray | None = None
    decoder_attention: np.ndarray | None = None


class Translator:
    """Translates lists of strings with a model, its tokenisers and a way to decode.

    What it answers is what its export answers: both run the same graph functions, each traced once
    whatever the number and length of the texts. Weights that change, in training for instance,
    change the answers; there is nothing to rebuild.

    Any bytes are welcome as text. Invalid UTF-8 is replaced, a text that is too long is cut, a text
    without a visible character has the empty translation.

    Args:
        model: a translation model with `start` and `explain`, such as `TranslationModel`.
        source_tokenizer: a `SubwordTokenizer` for what is translated.
        target_tokenizer: one for translations; the same by default.
        config: a `DecodingConfig`.
        max_source_length: tokens of a text, its end id counted; what is longer is cut.
        xla: whether the decoder is compiled, once for every bucket of batch size and length.

    Raises:
        RuntimeError: if Keras does not run on TensorFlow.
        ValueError: if vocabularies or lengths do not fit the model.

    >>> from keras_tfmr import SubwordTokenizer, TransformerConfig, TranslationModel
    >>> tokenizer = SubwordTokenizer.learn(["o gato preto", "the black cat"] * 9, vocab_size=300)
    >>> size = tokenizer.vocab_size
    >>> config = TransformerConfig.preset("tiny", source_vocab=size, target_vocab=size)
    >>> translator = Translator(TranslationModel(config), tokenizer)
    >>> translator.translate(["", "  "])
    ['', '']
    """

    def __init__(
        self,
        model: keras.Model,
        source_tokenizer: SubwordTokenizer,
        target_tokenizer: SubwordTokenizer | None = None,
        config: DecodingConfig | None = None,
        *,
        max_source_length: int = 128,
        xla: bool = False,
    ) -> None:
        if keras.backend.backend() != "tensorflow":
            raise RuntimeError(
                "Translator needs Keras on TensorFlow, whose graphs hold the tokenisers; "
                f"KERAS_BACKEND is {keras.backend.backend()!r}"
            )
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer or source_tokenizer
        self.config = config or DecodingConfig()
        self.max_source_length = max_source_length
        self.xla = xla
        self._check()
        self.graph = TextGraph(
            model,
            self.source_tokenizer,
            self.target_tokenizer,
            self.config,
            max_source_length,
            xla=xla,
        )
        text = tf.TensorSpec([None], tf.string, name="text")
        reference = tf.TensorSpec([None], tf.string, name="reference")
        translate = _traced(self.graph.translate, text)
        #: The functions of the export's signatures, by name.
        self.signatures: dict[str, Callable[..., dict[str, tf.Tensor]]] = {
            "serving_default": translate,
            "translate": translate,
            "translate_nbest": _traced(self.graph.translate_nbest, text),
            "score": _traced(self.graph.score, text, reference),
            "explain": _traced(self.graph.explain, text),
        }

    def _check(self):
        if self.max_source_length < 1:
            raise ValueError(
                f"max_source_length must be at least 1. Received: {self.max_source_length}"
            )
        config = getattr(self.model, "config", None)
        for side, tokenizer in (
            ("source", self.source_tokenizer),
            ("target", self.target_tokenizer),
        ):
            size = getattr(config, f"{side}_vocab", None)
            if size is not None and size < tokenizer.vocab_size:
                raise ValueError(
                    f"The model has {size} {side} ids, the {side} tokenizer produces "
                    f"{tokenizer.vocab_size}"
                )
        longest = max(self.max_source_length, self.config.max_length)
        if getattr(config, "positions", None) == "learned" and longest > config.max_length:
            raise ValueError(
                f"The model has learned {config.max_length} positions. Received: "
                f"max_source_length={self.max_source_length}, "
                f"config.max_length={self.config.max_length}"
            )

    def replace(self, *, precision: str | None = None, xla: bool | None = None) -> "Translator":
        """A translator with the same weights in another precision, compiled or not.

        Args:
            precision: "float32" or "bfloat16" for weights and layers; softmax and
                log-probabilities are float32 in either. None keeps the model as it is.
            xla: as in the constructor; None keeps it.

        Returns:
            A `Translator`, with a model of its own if the precision differs.
        """
        return Translator(
            self.model if precision is None else with_precision(self.model, precision),
            self.source_tokenizer,
            self.target_tokenizer,
            self.config,
            max_source_length=self.max_source_length,
            xla=self.xla if xla is None else xla,
        )

    def translate(self, texts: Iterable[Text], batch_size: int = 32) -> list[str]:
        """The best translation of each text.

        Args:
            texts: a list of strings.
            batch_size: how many are translated at a time; texts of a similar length go together.

        Returns:
            A list of strings, in the order of `texts`.
        """
        rows = self._rows("translate", texts, batch_size=batch_size)
        return [row["translation"].decode() for row in rows]

    def nbest(self, texts: Iterable[Text], batch_size: int = 32) -> list[list[Hypothesis]]:
        """The `config.n` best translations of each text.

        Returns:
            A list of lists of `Hypothesis`, best first.
        """
        found = []
        for row in self._rows("translate_nbest", texts, batch_size=batch_size):
            pairs = zip(row["translations"], row["scores"], strict=True)
            found.append(
                [
                    Hypothesis(text.decode(), float(score))
                    for text, score in pairs
                    if score > tf.float32.min
                ]
            )
        return found

    def score(
        self, texts: Sequence[Text], references: Sequence[Text], batch_size: int = 32
    ) -> list[Likelihood]:
        """How probable given translations are.

        Args:
            texts: a list of strings.
            references: a list of as many translations.

        Returns:
            A list of `Likelihood`.
        """
        if len(texts) != len(references):
            raise ValueError(
                f"Every text needs one reference. Received: {len(texts)} texts, "
                f"{len(references)} references"
            )
        rows = self._rows("score", texts, references, batch_size=batch_size)
        return [Likelihood(float(row["log_prob"]), int(row["tokens"])) for row in rows]

    def explain(self, texts: Iterable[Text], batch_size: int = 32) -> list[Explanation]:
        """What each token of each translation looked at.

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

    def _rows(
        self, signature: str, *columns: Iterable[Text], batch_size: int
    ) -> list[dict[str, Any]]:
        """Runs a signature over lists of strings; one dict of NumPy values for each row."""
        texts = [_strings(column) for column in columns]
        order = sorted(range(len(texts[0])), key=lambda row: len(texts[0][row]))
        rows: list[dict[str, Any]] = [{}] * len(order)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            batch = [tf.constant([column[row] for row in chosen]) for column in texts]
            outputs = self.signatures[signature](*batch)
            outputs = {name: value.numpy() for name, value in outputs.items()}
            for place, row in enumerate(chosen):
                rows[row] = {name: value[place] for name, value in outputs.items()}
        return rows


def _traced(function, *signature):
    # There is no Python control flow over tensors for AutoGraph to find, only time to lose.
    return tf.function(function, input_signature=signature, autograph=False)


def _strings(texts: Iterable[Text]) -> list[bytes]:
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"Expected a list of strings. Received: one string, {texts[:40]!r}")
    texts = list(texts)
    for text in texts:
        if not isinstance(text, (str, bytes)):
            raise TypeError(f"Expected a list of strings. Received an element: {text!r}")
    # A lone surrogate is no text; the tokeniser replaces it like any other invalid bytes.
    return [
        text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass") for text in texts
    ]
