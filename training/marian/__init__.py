"""Imports published Marian models, in either form, as run folders."""

import dataclasses

from training.files import RunError


@dataclasses.dataclass(frozen=True)
class Published:
    """The content of a published model, in either form.

    Fields:
        name: The name of its folder or file.
        form: "Marian release" or "transformers folder".
        config: Fields of a `TransformerConfig` other than the sizes of the vocabularies.
        arrays: {name: float32 array} under Marian's own names, matrices `[in, out]`.
        source, target: A `Vocabulary` each; the same object for a joint vocabulary.
        spms: Bytes of the SentencePiece models `(source, target)`.
        decoding: Fields of a `DecodingConfig`.
        banned: Published target ids that are never to be produced.
        notes: Lines about options of the published files that have no effect here.
    """

    name: str
    form: str
    config: dict
    arrays: dict
    source: object
    target: object
    spms: tuple
    decoding: dict
    banned: tuple = ()
    notes: tuple = ()


def decoding_options(beams, alpha, longest, **fields):
    """The beams and fields of a `DecodingConfig`, with the penalty length^alpha."""
    beams, alpha = int(beams), float(alpha)
    if alpha < 0:
        raise RunError(f"expected a length penalty of 0 or more; the model has {alpha}")
    fields |= {"length_penalty": alpha, "length_penalty_offset": 0.0, "max_length": int(longest)}
    return {"num_beams": beams, **fields}


def as_text(value):
    """The value of an option as YAML and JSON spell it."""
    return "" if value is None else str(value).lower()


def check_options(options, expected):
    """Raises a RunError that names an option whose value, as text, is not an expected one."""
    for option, values in expected.items():
        found = as_text(options.get(option, values[0]))
        if found not in values:
            wanted = " or ".join(map(repr, values))
            raise RunError(
                f"the model has {option}: {found or repr('')}, which is not imported; expected "
                f"{wanted}"
            )
