"""The shortlist of a translator, from encoded pairs and its tokenizers."""

import re
from typing import Any

from keras_tfmr.decoding import banned_ids
from keras_tfmr.shortlist.table import Lines, Shortlist

_BYTE = re.compile("<0x[0-9A-F]{2}>")


def learned(
    source: Lines, target: Lines, source_tokenizer: Any, target_tokenizer: Any
) -> Shortlist:
    """The `Shortlist` of pairs of lines.

    Always candidates are the end, the slots, and the bytes that spell what the vocabulary lacks. A
    subword that both languages have is a candidate for itself, so that names can be copied. What a
    translation never has is no candidate.

    Args:
        source, target: The ids of both sides, as `encode_lines` gives them.
        source_tokenizer, target_tokenizer: The tokenizers.
    """
    names = target_tokenizer.names()
    number = {name: i for i, name in enumerate(names)}
    spelling = {
        i: number[name] for i, name in enumerate(source_tokenizer.names()) if name in number
    }
    in_bytes = [i for i, name in enumerate(names) if _BYTE.fullmatch(name)]
    return Shortlist.learn(
        source,
        target,
        source_tokenizer.vocab_size,
        spelling=spelling,
        always=[target_tokenizer.eos_id, *target_tokenizer.slot_ids, *in_bytes],
        never=[*banned_ids(target_tokenizer)],
    )
