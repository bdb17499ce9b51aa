"""Shared by translators, classifiers and completers: signatures that exports run too."""

import abc
import operator
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Self, cast

import keras
import numpy as np
import tensorflow as tf

from keras_tfmr.export import write
from keras_tfmr.finished import optimize_for_decoding
from keras_tfmr.precision import with_precision
from keras_tfmr.presets.load import load
from keras_tfmr.presets.save import save
from keras_tfmr.shortlist import Shortlist
from keras_tfmr.signatures.inputs import Inputs, utf8
from keras_tfmr.signatures.signature import Answer, Signature
from keras_tfmr.text.strings import Text, checked_texts
from keras_tfmr.text.tokenizer import Tokenizer

BATCH = 32  # texts


class TextModel(abc.ABC):
    """A trained model with its tokenizers, from lists of strings to answers.

    Its answers are those of its export: both run the same graph functions, each traced once
    whatever the number and length of the texts. The functions read the weights at each call, so
    the answers follow a model in training. They are traced again after LoRA or `quantize` has put
    other weights into the layers.

    Any bytes are valid text. Invalid UTF-8 is replaced, and a text that is too long is cut. The
    answer for a text does not depend on the other texts. In int8, there is an exception: of two
    answers that are nearly as probable, either may come, depending on the batch.

    Presets state its class and the result of `get_config`; `from_config` makes it again.

    Attributes:
        model: The Keras model.
        tokenizers: Its tokenizers, by purpose.
        max_length: The maximum number of tokens read of a text.
        signatures: The functions of the export's signatures, by name.
        declared: Their declarations, by name.
        default: The name of the signature that serves requests without a name.
        record: The settings and results of its preset, which exports repeat.
        texts: Texts that its preset was evaluated on.
        languages: The codes of the source's and the target's language; "" for one that is not
            known, or that there is not.
        options: The names that `from_config` takes, an attribute of the class.
        formats: The formats of its exports, an attribute of the class.
    """

    options: ClassVar[tuple[str, ...]]
    formats: ClassVar[tuple[str, ...]] = ("saved_model",)
    languages: tuple[str, str] = ("", "")

    def __init__(
        self, model: keras.Model, tokenizers: dict[str, Tokenizer], max_length: int
    ) -> None:
        if keras.backend.backend() != "tensorflow":
            raise RuntimeError(
                f"{type(self).__name__} needs Keras on TensorFlow, whose graphs hold the "
                f"tokenizers; KERAS_BACKEND is {keras.backend.backend()!r}"
            )
        if max_length < 1:
            raise ValueError(
                f"The maximum length must be at least 1, for the end id. Received: {max_length}"
            )
        self.model, self.tokenizers, self.max_length = model, tokenizers, max_length
        self.record: dict[str, Any] = {}
        self.texts: list[str] = []

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        load_weights: bool | str | os.PathLike[str] = True,
        **options: Any,
    ) -> Self:
        """The text model of a preset, with its tokenizers and options.

        Args:
            preset: The folder of a training run, or one that `save_to_preset` wrote; that of a
                published MarianMT model, as transformers saves it; or `hf://OWNER/NAME`, which is
                downloaded from the Hugging Face Hub, with `@REVISION` for a branch, a tag or a
                commit.
            load_weights: Whether to load the weights; False leaves random ones. Or a file with
                other weights of the model.
            **options: Options of the class, instead of those of the preset. Of a `Translator`,
                they are its keyword arguments, the fields of its `DecodingConfig`, and `language`:
                the target language for texts without a tag, if the model has several.

        Returns:
            An object of the class, or of one made from it that the preset states.

        Raises:
            PresetError: If there is no such preset, it cannot be read, it is one of another class,
                or an option is unknown; a ValueError.
        """
        return cast(Self, load(cls, TextModel, preset, load_weights, options))

    def save_to_preset(self, preset_dir: str | os.PathLike[str]) -> pathlib.Path:
        """Writes a folder for `from_preset`, with the files of a training run.

        Args:
            preset_dir: The folder, empty or missing. It appears complete, or not at all.

        Returns:
            Its path.

        Raises:
            ExportError: If the folder is not empty, or cannot be written.
            PresetError: If the model is quantised or made for decoding only, or if a class of your
                own is not registered with Keras.
        """
        return save(self, preset_dir)

    def export(
        self,
        directory: str | os.PathLike[str],
        *,
        format: str = "saved_model",
        precision: str | None = None,
        texts: Iterable[Text] | None = None,
        warm_up: Iterable[str] | None = None,
        shortlist: Shortlist | None = None,
        check: bool = True,
    ) -> pathlib.Path:
        """Writes the model for TensorFlow Serving, with everything that a server needs.

        The SavedModel holds the tokenizers and the weights in the form in which they decode
        fastest: see `optimize_for_decoding`. If the table of an embedding makes the logits, these
        have a table of their own. There is no optimizer. It has one graph, tagged `serve`, which
        TensorFlow Serving, `tf.saved_model.load` and `keras.layers.TFSMLayer` load. The version
        appears in `directory` complete, under the next free number, so that a server that watches
        the folder never sees part of it. To load it, TensorFlow and TensorFlow Text are enough;
        Keras and this package are not needed.

        Args:
            directory: The folder of versions, a server's `--model_base_path`; for another format,
                the folder to write, empty or missing.
            format: "saved_model"; of a translator also "ctranslate2", or "transformers" for its
                `MarianMTModel`.
            precision: "float32", "bfloat16" or "int8" for weights and layers; log-probabilities are
                float32 in all. None: that of the model. See `optimize_for_decoding` for int8, which
                needs TensorFlow 2.20 or newer for Linux on x86-64, in the server too. In int8,
                answers that are nearly as probable can change places from batch to batch.
            texts: Texts like those of real requests, a few hundred: to warm a server up with, and
                for int8 to find the ranges of products with and to compare the answers with those
                in float32. By default those of the preset, else sentences in its language.
            warm_up: Names of the signatures that a server warms up before it serves: each then
                answers its first request as fast as the others, and takes a second of the server's
                start. By default those that servers are asked most: `translate` and
                `translate_nbest`, `classify`, or `complete` and `complete_greedily`.
            shortlist: The few target ids that a translation may have, from `learn_shortlist`: a
                large vocabulary then takes less time. The metadata say how many translations of
                the texts stay the same. For CTranslate2, its `vmap.txt`.
            check: Whether a new process loads and queries the result before it appears.

        Returns:
            The path of the new version, or of the folder.

        Raises:
            ExportError: If it cannot be written, the other format lacks what the model needs, the
                answers in int8 stray from those in float32, or the check finds a problem; nothing
                is left behind.
            ValueError: If the model does not have the precision, such as a classifier int8, there
                are no texts for int8 or a shortlist, there is no signature of a name to warm up, or
                an option has no effect on the format.
        """
        return write.export(self, directory, format, precision, texts, warm_up, shortlist, check)

    def _serve(self, *served: tuple[Signature[Any], Callable]) -> None:
        """Makes a graph function for each pair of a signature and its method; the first is default.

        The method takes a tensor for each input and returns a dict of the outputs.
        """
        self.default = served[0][0].name
        self.declared = {signature.name: signature for signature, _ in served}
        self.signatures: dict[str, Any] = {  # of `tf.function`s
            signature.name: traced(method, **signature.inputs) for signature, method in served
        }
        self._weights = [*self.model.weights]

    @abc.abstractmethod
    def _trace(self):
        """Makes the graph functions of the model as it is."""

    def _follow_model(self):
        """Traces again if the model has other weights, as after `enable_lora` or `quantize`."""
        now = self.model.weights
        if len(now) != len(self._weights) or any(map(operator.is_not, now, self._weights)):
            self._trace()

    @abc.abstractmethod
    def get_config(self) -> dict[str, Any]:
        """The options for `from_config`, as JSON can hold them."""

    @classmethod
    def from_config(
        cls, config: dict[str, Any], model: keras.Model, tokenizers: tuple[Any, Any]
    ) -> Self:
        """An object of the class.

        Args:
            config: {option: value}, as of `get_config`; the others have their defaults.
            model: The model.
            tokenizers: For the source and the target, as `sides` gives them.

        Raises:
            ValueError: If an option is unknown or out of range.
        """
        if unknown := sorted(config.keys() - {*cls.options}):
            raise ValueError(
                f"Unknown options of a {cls.__name__}: {unknown}. Expected some of: "
                f"{sorted(cls.options)}"
            )
        return cls._made_of(dict(config), model, *tokenizers)

    @classmethod
    @abc.abstractmethod
    def _made_of(cls, config, model, source, target):
        """An object of the class, of known options."""

    @abc.abstractmethod
    def sides(self) -> tuple[Any, Any]:
        """The tokenizers of source and target, one twice if there is one; or `Labels`."""

    def replace(
        self, *, model: keras.Model | None = None, precision: str | None = None, **options: Any
    ) -> Self:
        """A copy with another model, with its weights in another precision, or other options.

        Args:
            model: A model for the same tokenizers; None keeps it.
            precision: "float32" or "bfloat16" for weights and layers; softmax and
                log-probabilities are float32 in both. None keeps the precision.
            **options: Options of `from_preset`, instead of those of this one.

        Returns:
            An object of the same class. It has its own model if the precision differs.
        """
        model = self.model if model is None else model
        model = model if precision is None else with_precision(model, precision)
        copy = self.from_config({**self.get_config(), **options}, model, self.sides())
        copy.record, copy.texts = self.record, self.texts
        return copy

    def for_decoding(self, precision: str | None = None, texts: Sequence[Text] = ()) -> Self:
        """A copy whose model is the one of `optimize_for_decoding`, for decoding only.

        Args:
            precision: "float32", "bfloat16" or "int8"; None keeps the precision.
            texts: For int8, texts like those to come, to find the ranges of products with.
        """
        examples = self.calibration_inputs(texts) if precision == "int8" else ()
        return self.replace(model=optimize_for_decoding(self.model, precision, examples))

    def calibration_inputs(self, texts: Sequence[Text]) -> list[Any]:
        """Model inputs for these texts, in batches: the examples of int8."""
        return []

    def token_counts(self, texts: Sequence[Text]) -> np.ndarray:
        """Number of tokens read of each text, the end id included: int64 `[texts]`."""
        tokenizer = next(iter(self.tokenizers.values()))
        texts = [utf8(text) for text in checked_texts(texts)]
        return tokenizer.counts(texts, self.max_length - 1).numpy() + 1

    def _check_vocabulary(self, size, tokenizer, side=""):
        """Raises a ValueError if the model has fewer ids than a tokenizer."""
        if size < tokenizer.vocab_size:
            raise ValueError(
                f"The model must have at least as many {side}ids as the {side}tokenizer. Received: "
                f"{size} {side}ids in the model, {tokenizer.vocab_size} in the tokenizer"
            )

    def _answers(
        self, signature: Signature[Answer], inputs: Inputs, batch_size: int
    ) -> list[Answer]:
        """The answers of a signature's function, by batches of texts of similar length."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1. Received: {batch_size}")
        self._follow_model()
        function = self.signatures[signature.name]
        columns = [(inputs[name], dtype) for name, dtype in signature.inputs.items()]
        texts, _ = columns[0]
        order = list(range(len(texts)))
        if len(order) > batch_size:  # one batch needs no order, and counting takes time
            order = self.token_counts(texts).argsort(kind="stable").tolist()
        answers: dict[int, Answer] = {}
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            batch = [tf.constant([values[i] for i in rows], dtype) for values, dtype in columns]
            outputs = {name: _lists(value.numpy()) for name, value in function(*batch).items()}
            answers.update(zip(rows, signature.read(outputs), strict=True))
        return [answers[row] for row in range(len(texts))]


def _lists(value):
    """An array as nested lists, with str for bytes."""
    if value.dtype == object:
        value = np.vectorize(bytes.decode, otypes=[object])(value)
    return value.tolist()


def traced(function: Callable, **inputs: Any) -> Any:
    """A `tf.function` that is traced once, for inputs of any size.

    Args:
        function: Takes tensors in the order of the inputs.
        inputs: The dtype of each input, by its name; or its shape and dtype, if it is not a vector
            `[batch]`.
    """
    specs = [
        tf.TensorSpec(*(spec if isinstance(spec, tuple) else ([None], spec)), name=name)
        for name, spec in inputs.items()
    ]
    # Without AutoGraph: there is no Python control flow over tensors, and conversion takes time.
    return tf.function(function, input_signature=specs, autograph=False)


def shifted(ids: Any, bos_id: int) -> Any:
    """Decoder inputs that predict ids [rows, length]: the start id, then all but the last.

    A tensor for a tensor, an array for an array of the training's batches.
    """
    pad = np.pad if isinstance(ids, np.ndarray) else tf.pad
    return pad(ids[:, :-1], [[0, 0], [1, 0]], constant_values=bos_id)
