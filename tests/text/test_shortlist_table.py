"""The table of a shortlist, against IBM Model 1 in loops over dictionaries."""

import collections

import numpy as np
import pytest
from text_models import LINES, tokenizer

from keras_tfmr.shortlist import Shortlist
from keras_tfmr.shortlist.learn import learned
from keras_tfmr.shortlist.model_1 import model_1
from keras_tfmr.text.spans import SLOTS

SOURCE = [[4, 5], [4, 6, 4], [], [6, 5], [7], [5, 4]]
TARGET = [[9, 8], [9, 9, 7], [8], [8], [], [6, 9]]


def lines(rows):
    """The values and offsets of lists of ids."""
    return np.concatenate(rows).astype("uint16"), np.cumsum([0, *map(len, rows)])


def by_hand(pairs, rounds):
    """{(source id, target id): p}, as the paper's section 4.5 has it, without a null word."""
    p = {(s, t): 1.0 for source, target in pairs for s in source for t in target}
    for _ in range(rounds):
        count, total = collections.Counter(), collections.Counter()
        for source, target in pairs:
            for t in target:
                for s in source:
                    share = p[s, t] / sum(p[other, t] for other in source)
                    count[s, t] += share
                    total[s] += share
        p = {(s, t): count[s, t] / total[s] for s, t in p}
    return p


@pytest.mark.parametrize("rounds", [1, 5])
def test_probabilities_are_those_of_model_1(rounds):
    *ids, p = model_1(lines(SOURCE), lines(TARGET), rounds)
    expected = by_hand([*zip(SOURCE, TARGET, strict=True)], rounds)
    assert {(int(s), int(t)) for s, t in zip(*ids, strict=True)} == expected.keys()
    np.testing.assert_allclose(p, [expected[int(s), int(t)] for s, t in zip(*ids, strict=True)])


def test_of_too_many_pairs_evenly_spaced_ones_count():
    found = model_1(lines(SOURCE), lines(TARGET), most_links=10)  # of 19
    expected = model_1(lines(SOURCE[::2]), lines(TARGET[::2]))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_candidates_are_the_most_probable_the_most_frequent_and_what_is_given():
    given = {"candidates": 2, "spelling": {7: 7, 4: 5}, "always": [3, 2], "never": [2, 8]}
    found = Shortlist.learn(lines(SOURCE), lines(TARGET), 8, frequent=1, **given)
    p = by_hand([*zip(SOURCE, TARGET, strict=True)], 5)
    for source in range(8):
        best = sorted((t for s, t in p if s == source), key=lambda t: -p[source, t])[:2]
        spelling = [given["spelling"][source]] if source in given["spelling"] else []
        expected = sorted([t for t in best if t != 8] + spelling)
        assert sorted(found.table[source][found.table[source] > 0].tolist()) == expected
    assert found.always.tolist() == [3, 9]


def test_no_table_from_sides_of_different_lengths():
    with pytest.raises(ValueError, match="Received: 6 source lines, 1 target lines"):
        Shortlist.learn(lines(SOURCE), lines(TARGET[:1]), 8)


def test_a_translator_can_always_end_spell_and_copy():
    subwords = tokenizer(SLOTS)
    source, target = (subwords.encode_lines(side) for side in (LINES[:3], LINES[3:]))
    found, names = learned(source, target, subwords, subwords), subwords.names()
    spelt = {i for i, name in enumerate(names) if name.startswith("<0x")} - {names.index("<0xEE>")}
    assert {*found.always.tolist()} >= {subwords.eos_id, *subwords.slot_ids} | spelt
    never = {subwords.pad_id, subwords.unknown_id, subwords.bos_id, *subwords.slot_like_ids}
    assert not never & {*found.always.tolist(), *found.table[found.table > 0].tolist()}
    for number in {*range(subwords.vocab_size)} - never:
        assert number in found.table[number], names[number]
