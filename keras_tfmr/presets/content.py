"""What a preset holds, whichever form its files have."""

import dataclasses
from typing import Any

import keras


@dataclasses.dataclass
class Content:
    """Everything that a text model is made of.

    Fields:
        model: The model, with its weights.
        arguments: Arguments of the text model's class, other than the model and the search.
        decoding: Fields of a `DecodingConfig`, for a translator.
        record: What the preset says about where it is from, for exports.
        texts: Texts that it was evaluated on.
    """

    model: keras.Model
    arguments: dict[str, Any]
    decoding: dict[str, Any]
    record: dict[str, Any]
    texts: list[str]
