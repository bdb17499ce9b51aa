"""Description of a published model, without its weights; checks of what is supported."""

import dataclasses
from collections.abc import Callable

from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.marian.tokenizer import MarianTokenizer, joined
from keras_tfmr.presets import PresetError


@dataclasses.dataclass(frozen=True)
class Description:
    """A published model without its weights, in either form.

    Fields:
        config: Fields of a `TransformerConfig` other than the sizes of the vocabularies.
        decoding: A `DecodingConfig`.
        vocabularies: The `Vocabulary` of each side, source and target; the same one if joint.
        spms: Bytes of the SentencePiece models `(source, target)`.
        arrays: Reads the weights, {Marian's name: array}; takes the model's `TransformerConfig`.
        banned: Published target ids that are never to be produced.
        notes: Lines about options of the published files that have no effect here.
        name: The model's name, if its files have one.
    """

    config: dict
    decoding: DecodingConfig
    vocabularies: tuple
    spms: tuple
    arrays: Callable
    banned: tuple = ()
    notes: tuple = ()
    name: str | None = None

    def tokenizers(self, language=None):
        """The `(source, target)` tokenizers; `language` is that of texts without a tag.

        Raises:
            PresetError: If the model does not know the language, or an .spm cannot be read.
        """
        pieces = [vocabulary.own_pieces() for vocabulary in self.vocabularies]
        try:
            source = MarianTokenizer(joined(self.spms[0], pieces[0], reads_tags=True))
            target = MarianTokenizer(joined(self.spms[1], pieces[1]))
            return source if language is None else source.into(language), target
        except ValueError as error:
            raise PresetError(str(error)) from error


def decoding_config(beams, alpha, longest, ratio=None):
    """The `DecodingConfig` of these options, which can return all translations of a search.

    Args:
        beams: The width of the search.
        alpha: The exponent of the length penalty, length^alpha.
        longest: Maximum number of tokens of a translation.
        ratio: Maximum tokens per source token, as in Marian; None for our default.

    Raises:
        PresetError: If one is out of range.
    """
    try:
        fields = {} if ratio is None else {"max_length_ratio": float(ratio), "max_length_extra": 0}
        return DecodingConfig(
            num_beams=int(beams),
            num_return_sequences=int(beams),
            length_penalty=float(alpha),
            length_penalty_offset=0.0,
            max_length=int(longest),
            **fields,
        )
    except (TypeError, ValueError) as error:
        raise PresetError(f"a decoding option of the model is out of range: {error}") from error


def as_text(value):
    """The value of an option as YAML and JSON spell it."""
    return "" if value is None else str(value).lower()


def check_options(options, expected):
    """Raises a PresetError that names an option whose value, as text, is not an expected one.

    Args:
        options: {option: value} of the model. One that is left out is newer than the model, and
            has the first expected value.
        expected: {option: the values that it can have}.
    """
    for option, values in expected.items():
        found, texts = as_text(options.get(option, values[0])), [*map(as_text, values)]
        if found not in texts:
            wanted = " or ".join(map(repr, texts))
            raise PresetError(
                f"the model has {option}: {found or repr('')}, which is not supported; expected "
                f"{wanted}"
            )


def sizes_of(options, fields):
    """{field of a `TransformerConfig`: size} of a model's options.

    Args:
        options: {option: value} of the model.
        fields: {field: option}.

    Raises:
        PresetError: If an option is missing or not a size, or the width is odd.
    """
    sizes = {}
    for field, option in fields.items():
        least, value = 4 if field == "d_model" else 1, as_text(options.get(option, "no value"))
        sizes[field] = int(value) if value.isdecimal() else 0
        if sizes[field] < least or (field == "d_model" and sizes[field] % 2):
            kind = "an even number of 4 or more" if field == "d_model" else "1 or more"
            raise PresetError(f"the model has {option}: {value}; expected {kind}")
    return sizes
