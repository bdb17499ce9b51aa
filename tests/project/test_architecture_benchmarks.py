"""What the comparison of architectures counts: rates, lengths, norms of derivatives, pronouns."""

import math

import pytest
import tensorflow as tf

from benchmarks.architecture_parts.bottleneck import by_length
from benchmarks.architecture_parts.languages import search
from benchmarks.gradients import WIDTH, norms
from benchmarks.pronouns import Example, strongest, words_of


@pytest.mark.parametrize("best", [5e-5, 3e-3, 8e-2])
def test_rates_are_searched_until_the_best_lies_between_two_others(best):
    tried = search(lambda rate: abs(math.log(rate / best)))
    found = min(tried, key=tried.get)
    assert min(tried) < found < max(tried)
    assert abs(math.log(found / best)) < math.log(2)


def test_norms_of_derivatives():
    """h_t = 3 (x_1 + … + x_t): the Jacobian is 3 I at every t, of norm 3 √width."""
    found = norms(lambda: lambda x: 3.0 * tf.cumsum(x, axis=1), [1, 2, 5])
    assert found == pytest.approx([3 * math.sqrt(WIDTH)] * 3, rel=0.1)
    alone = norms(lambda: lambda x: x + 0.0 * x[:, :1], [1, 2])
    assert alone == pytest.approx([math.sqrt(WIDTH), 0.0], rel=0.1)


def test_pairs_by_length():
    pairs = [("um dois três", "a"), ("um dois três quatro cinco", "b"), ("um", "c")]
    assert by_length(pairs) == {"3–4": pairs[:1], "5–6": pairs[1:2]}


def test_places_of_pronoun_and_noun():
    example = Example(
        "A irmã dela não vai correr hoje porque está cansada.",
        "Her sister isn't going to run today because she is tired.",
    )
    assert example.english.split()[example.pronoun] == "she"
    assert (example.noun, example.phrase) == (
        {"target": {1}, "source": {1}},
        {"target": {0, 1}, "source": {0, 1, 2}},
    )


def test_the_weight_of_a_word_is_that_of_its_pieces():
    class Tokenizer:
        def pieces(self, ids):
            return tf.constant([["▁M", "y", "▁sister", "▁is", "</s>"]])

    assert words_of(Tokenizer(), [1, 2, 3, 4, 5]) == [0, 0, 1, 2, 2]
    scores = tf.constant([[[[0.25, 0.2, 0.3, 0.15, 0.1]]]]).numpy()
    assert strongest(scores, 0, [0, 0, 1, 2, 2]).tolist() == [[0]]
