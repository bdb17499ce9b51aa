"""IBM Model 1: how probable each target id is as the translation of a source id, from pairs.

Reference: Brown et al. 1993, The Mathematics of Statistical Machine Translation
(https://aclanthology.org/J93-2003).
"""

import numpy as np

ROUNDS = 5  # of expectation-maximisation
MOST_LINKS = 20_000_000  # pairs of tokens that are held in memory: about a gigabyte


def model_1(source, target, rounds=ROUNDS, most_links=MOST_LINKS):
    """The probabilities of all pairs of ids that stand in the same pair of lines.

    Args:
        source, target: `(values, offsets)` of the ids of all lines: line i is
            `values[offsets[i]:offsets[i + 1]]`.
        rounds: Rounds of expectation-maximisation, the first from equal probabilities.
        most_links: The most pairs of tokens to learn from; of more, evenly spaced lines are used.

    Returns:
        `source_ids`, `target_ids` int64 and `p` float64, all `[pairs of ids]`, ordered by the
        source id: p(target id | source id).
    """
    s, t, token = links(*spaced(source, target, most_links))
    size = int(t.max(initial=0)) + 1
    keys, link = np.unique(s * size + t, return_inverse=True)
    source_ids, target_ids = np.divmod(keys, size)
    p = np.ones(len(keys))
    for _ in range(rounds):
        weight = p[link]
        share = weight / np.bincount(token, weight)[token]  # of a target token's source tokens
        count = np.bincount(link, share, minlength=len(keys))
        p = count / np.bincount(source_ids, count)[source_ids]
    return source_ids, target_ids, p


def spaced(source, target, most_links):
    """Evenly spaced lines of both sides that have at most so many links, or one line."""
    lengths = np.diff(source[1]) * np.diff(target[1])
    stride = max(1, -(-int(lengths.sum()) // most_links))
    lines = np.arange(0, len(lengths), stride)
    return lines_of(source, lines), lines_of(target, lines)


def lines_of(side, lines):
    """`(values, offsets)` of some of the lines."""
    values, offsets = side
    begin = np.asarray(offsets)[lines]
    lengths = np.asarray(offsets)[lines + 1] - begin
    return np.asarray(values)[ranges(begin, lengths)], np.cumsum([0, *lengths])


def links(source, target):
    """Each pair of a source and a target token of the same pair of lines.

    Returns:
        int64 `[links]` each: the source id, the target id, and the number of the target token.
    """
    (source_values, source_offsets), (target_values, target_offsets) = source, target
    pair = np.repeat(np.arange(len(target_offsets) - 1), np.diff(target_offsets))  # of each token
    lengths = np.diff(source_offsets)[pair]
    token = np.repeat(np.arange(len(pair)), lengths)
    source_ids = source_values[ranges(source_offsets[:-1][pair], lengths)]
    return source_ids.astype("int64"), target_values[token].astype("int64"), token


def ranges(begin, lengths):
    """The numbers from each beginning on, as many as its length, one range behind the other.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) + np.repeat(begin - before, lengths)
