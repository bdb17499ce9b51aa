"""Gives the weights of a trained model to one with another, or a larger, vocabulary."""

import re

import numpy as np

_OF_SUBWORDS = re.compile(r"(source_)?embedding/tokens/|logits/")


def carry_over(old, old_tokenizers, new, new_tokenizers):
    """Gives the weights of a model to one that differs in its vocabularies only.

    A subword that both vocabularies have keeps its embedding. Another begins with the mean of the
    embeddings of its parts in the old vocabulary; so do its column of the logits and its bias.

    Args:
        old: The trained model.
        old_tokenizers: Its `(source, target)` tokenizers.
        new: The model that gets the weights.
        new_tokenizers: Its `(source, target)` tokenizers.

    Reference: Gee et al. 2022, Fast Vocabulary Transfer for Language Model Compression
    (arXiv 2402.09977).
    """
    from training.run.checkpoints import value_of

    source, target = map(parts_of, old_tokenizers, new_tokenizers)
    values = {weight.path: value_of(weight) for weight in old.weights}
    for weight in new.weights:
        value, found = values[weight.path], _OF_SUBWORDS.search(weight.path)
        if found:
            axis = -1 if "logits/" in weight.path else 0
            parts = source if found[1] else target
            value = np.stack([value.take(ids, axis).mean(axis) for ids in parts], axis)
        weight.assign(value)


def parts_of(old, new):
    """For each id of a tokenizer, the ids of an older one that make up the same subword."""
    ids = {piece: i for i, piece in enumerate(pieces_of(old))}
    longest = max(map(len, ids))
    special = {new.pad_id, new.unknown_id, new.start_id, new.end_id}  # the same in all tokenizers
    return [
        [i] if i in special else split(piece, ids, longest) or [old.unknown_id]
        for i, piece in enumerate(pieces_of(new))
    ]


def pieces_of(tokenizer):
    """The subwords of a tokenizer as they are written, a list of str."""
    return [piece.decode() for piece in tokenizer.pieces(np.arange(tokenizer.vocab_size)).numpy()]


def split(piece, ids, longest):
    """The ids of the longest known parts of a piece from left to right, leaving out the unknown.

    >>> split("abcd", {"a": 4, "ab": 5, "d": 6}, longest=2)
    [5, 6]
    """
    found, at = [], 0
    while at < len(piece):
        ends = range(min(at + longest, len(piece)), at, -1)
        end = next((end for end in ends if piece[at:end] in ids), None)
        if end is not None:
            found.append(ids[piece[at:end]])
        at = end or at + 1
    return found
