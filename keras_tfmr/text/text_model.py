"""What translators, classifiers, taggers and completers share: signatures that exports run too."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfmr._inputs import Text, checked_texts, utf8
from keras_tfmr.export.optimize import optimize_for_decoding
from keras_tfmr.precision import with_precision
from keras_tfmr.text.buckets import length_buckets, text_per_bucket
from keras_tfmr.text.tokenizer import SubwordTokenizer


class TextModel(abc.ABC):
    """A trained model with its tokenisers, from lists of strings to answers.

    Its answers are those of its export: both run the same graph functions, each traced once
    whatever the number and length of the texts. The functions read the weights at each call, so
    the answers follow a model in training.

    Any bytes are valid text. Invalid UTF-8 is replaced, and a text that is too long is cut. The
    answer for a text does not depend on the other texts.

    Attributes:
        model: The Keras model.
        tokenizers: Its tokenisers, by purpose.
        xla: Whether XLA compiles the part between the tokenisers, once for each size of
            `BATCH_BUCKETS` and each of `length_buckets`; except a completer's, only for
            batches of up to `MOST_COMPILED`.
        max_length: The most tokens that are read of a text.
        tables: Variables that the signatures read beside the model's weights.
        length_buckets: The lengths up to which texts are padded, if the model is compiled.
        signatures: The functions of the export's signatures, by name.
        methods: TensorFlow Serving's name for the method of a signature, if it is not Predict.
        default: The signature that serves requests without a name. With `xla`, warm-up requests to
            it reach every compiled program.
    """

    default = ""

    def __init__(
        self,
        model: keras.Model,
        tokenizers: dict[str, SubwordTokenizer],
        max_length: int,
        xla: bool,
    ) -> None:
        if keras.backend.backend() != "tensorflow":
            raise RuntimeError(
                f"{type(self).__name__} needs Keras on TensorFlow, whose graphs hold the "
                f"tokenisers; KERAS_BACKEND is {keras.backend.backend()!r}"
            )
        if max_length < 1:
            raise ValueError(
                f"The maximum length must be at least 1, for the end id. Received: {max_length}"
            )
        self.model, self.tokenizers = model, tokenizers
        self.max_length, self.xla = max_length, xla
        self.length_buckets = length_buckets(max_length)
        self.tables: list[tf.Variable] = []
        self.signatures: dict[str, Callable[..., dict[str, tf.Tensor]]] = {}
        self.methods: dict[str, str] = {}

    @abc.abstractmethod
    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments other than the model and `xla`, by name."""

    @abc.abstractmethod
    def request(self, signature: str, texts: Sequence[Text]) -> dict[str, list[Any]]:
        """A request to a signature with these texts: {name of the input: a value for each text}."""

    def answers_when_rounded(self, signature: str) -> tuple[str, ...] | None:
        """Names of the outputs that rounding to bfloat16 changes only slightly; None for all.

        The other outputs can change completely, as the best of two labels does.
        """
        return None

    def to_metadata(self) -> dict[str, Any]:
        """What an export's JSON file records, apart from the model."""
        return {
            "max_length": self.max_length,
            "length_buckets": list(self.length_buckets) if self.xla else None,
        }

    def replace(
        self,
        *,
        model: keras.Model | None = None,
        precision: str | None = None,
        xla: bool | None = None,
    ) -> Self:
        """A copy with another model, with its weights in another precision, compiled or not.

        Args:
            model: A model for the same tokenisers; None keeps it.
            precision: "float32" or "bfloat16" for weights and layers; softmax and
                log-probabilities are float32 in both. None keeps the precision.
            xla: As in the constructor; None keeps it.

        Returns:
            An object of the same class. It has its own model if the precision differs.
        """
        model = self.model if model is None else model
        return type(self)(
            model if precision is None else with_precision(model, precision),
            **self.arguments(),
            xla=self.xla if xla is None else xla,
        )

    def untied(self) -> Self:
        """A copy whose model is the one of `optimize_for_decoding`."""
        return self.replace(model=optimize_for_decoding(self.model))

    def token_counts(self, texts: Sequence[Text]) -> np.ndarray:
        """How many tokens the model reads of each text, the end id included: int64 `[texts]`."""
        tokenizer = next(iter(self.tokenizers.values()))
        texts = [utf8(text) for text in checked_texts(texts)]
        return tokenizer.encode(texts, self.max_length - 1).row_lengths().numpy() + 1

    def text_per_bucket(self, texts: Sequence[str]) -> list[str]:
        """One text for each length that is compiled, made of the words of `texts`."""
        tokenizer = next(iter(self.tokenizers.values()))

        def count(text):
            ids, truncated = tokenizer.encode_truncated(tf.constant([text]), self.max_length)
            return int(tf.shape(ids)[1]) + int(truncated[0])

        return text_per_bucket(texts, self.length_buckets, count)

    def _check_vocabulary(self, field, tokenizer, side=""):
        size = getattr(getattr(self.model, "config", None), field, None)
        if size is not None and size < tokenizer.vocab_size:
            raise ValueError(
                f"The model must have at least as many {side}ids as the {side}tokenizer. Received: "
                f"{size} {side}ids in the model, {tokenizer.vocab_size} in the tokenizer"
            )

    def _check_positions(self, longest, received):
        config = getattr(self.model, "config", None)
        if getattr(config, "positions", None) == "learned" and longest > config.max_length:
            raise ValueError(
                f"The model has learned {config.max_length} positions, and texts cannot be longer. "
                f"Received: {received}"
            )

    def _rows(self, signature, *columns, batch_size):
        """Runs a signature over lists of values; one dict of NumPy values for each row."""
        function = self.signatures[signature]
        dtypes = [spec.dtype for spec in function.input_signature]
        columns = [
            [utf8(text) for text in checked_texts(column)] if dtype == tf.string else column
            for column, dtype in zip(columns, dtypes, strict=True)
        ]
        order = list(range(len(columns[0])))
        if len(order) > batch_size:  # one batch needs no order, and counting takes time
            order = self.token_counts(columns[0]).argsort(kind="stable").tolist()
        rows = [None] * len(order)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            batch = [
                tf.constant([column[row] for row in chosen], dtype)
                for column, dtype in zip(columns, dtypes, strict=True)
            ]
            outputs = {name: value.numpy() for name, value in function(*batch).items()}
            for place, row in enumerate(chosen):
                rows[row] = {name: value[place] for name, value in outputs.items()}
        return rows


def traced(function, **inputs):
    """A function of tensors [batch] as the `tf.function` of a signature.

    Args:
        function: Takes the inputs in their order, and returns a dict of tensors [batch, ...].
        inputs: The dtype of each input, by its name.
    """
    specs = [tf.TensorSpec([None], dtype, name=name) for name, dtype in inputs.items()]
    # Without AutoGraph: there is no Python control flow over tensors, and conversion takes time.
    return tf.function(function, input_signature=specs, autograph=False)


def compiled(function, xla, **inputs):
    """A function of the part between the tokenisers, traced once for all signatures.

    Args:
        function: Takes tensors in the order of the inputs.
        xla: Whether XLA compiles it.
        inputs: (shape, dtype) of each input, by its name.
    """
    specs = [tf.TensorSpec(shape, dtype, name=name) for name, (shape, dtype) in inputs.items()]
    return tf.function(function, input_signature=specs, jit_compile=xla, autograph=False)
