"""Description of a published model, without its weights; options, and what they mean."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from keras_tfmr.decoding import DecodingConfig
from keras_tfmr.errors import ExportError, PresetError
from keras_tfmr.presets.marian.tokenizer import MarianTokenizer, joined


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
        """The `(source, target)` tokenizers; `language` is that of texts without a tag."""
        pieces = [vocabulary.own_pieces() for vocabulary in self.vocabularies]
        try:
            source = MarianTokenizer(joined(self.spms[0], pieces[0], reads_tags=True))
            target = MarianTokenizer(joined(self.spms[1], pieces[1]))
            return source if language is None else source.into(language), target
        except ValueError as error:
            raise PresetError(str(error)) from error


def decoding_config(beams, alpha, longest, ratio=None):
    """The `DecodingConfig` of a search that returns all its beams; a PresetError if out of range.

    The length penalty is length^alpha; `ratio` is Marian's maximum of tokens per source token.
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


class Options(NamedTuple):
    """How a form says what a model is, to read it and to write it.

    Fields:
        expected: {option: the values that it can have, first the one written}.
        sizes: {field of a `TransformerConfig`: its options, which must be equal}. All but the
            first can be missing, or 0.
        choices: {field of a `TransformerConfig`: (its options, {their values: the field's})}; of
            several values for one, the first is written.
    """

    expected: dict
    sizes: dict
    choices: dict

    def fields_of(self, options):
        """Fields of a `TransformerConfig`.

        Args:
            options: {option: value} of the model. One that is left out is newer than the model, and
                has the first value.

        Raises:
            PresetError: If the model cannot be had; it names the option, its value and those that
                are supported.
        """
        for option, values in self.expected.items():
            chosen(options, (option,), {(value,): None for value in values})
        fields = {
            field: chosen(options, names, values) for field, (names, values) in self.choices.items()
        }
        for field, (option, *others) in self.sizes.items():
            fields[field] = size = _size(options, option, field == "d_model")
            for other in others:
                if as_text(options.get(other, size)) not in ("0", str(size)):
                    raise PresetError(
                        f"the model has {option}: {size} and {other}: {options[other]}, which is "
                        "not supported; expected one number"
                    )
        return fields

    def of(self, config):
        """The options of a `TransformerConfig`, the inverse of `fields_of`; or an ExportError."""
        options = {option: values[0] for option, values in self.expected.items()}
        for field, names in self.sizes.items():
            options |= dict.fromkeys(names, getattr(config, field))
        for field, (names, values) in self.choices.items():
            theirs = {ours: theirs for theirs, ours in reversed(values.items())}
            if (value := getattr(config, field)) not in theirs:
                raise ExportError(f"{', '.join(names)} has no counterpart of {field}={value!r}")
            options |= zip(names, theirs[value], strict=True)
        return options


def chosen(options, names, values):
    """What the values of some options stand for, by {their values: what they stand for}."""
    first = dict(zip(names, next(iter(values)), strict=True))
    received = tuple(as_text(options.get(name, first[name])) for name in names)
    texts = {tuple(map(as_text, theirs)): ours for theirs, ours in values.items()}
    if received not in texts:
        spelt = [", ".join(value or "''" for value in values) for values in (received, *texts)]
        raise PresetError(
            f"the model has {', '.join(names)}: {spelt[0]}, which is not supported; expected "
            f"{' or '.join(spelt[1:])}"
        )
    return texts[received]


def _size(options, option, is_width=False):
    text = as_text(options.get(option, "no value"))
    size = int(text) if text.isdecimal() else 0
    if size < 1 or (is_width and (size < 4 or size % 2)):
        kind = "an even number of 4 or more" if is_width else "1 or more"
        raise PresetError(f"the model has {option}: {text}; expected {kind}")
    return size
