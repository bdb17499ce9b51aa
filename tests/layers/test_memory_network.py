"""The memory network against its paper's equations in NumPy; padding, both tyings."""

import formulas
import numpy as np
import pytest
from helpers import random, random_ids, to_numpy

from keras_tfmr.recurrent import MemoryNetwork, MemoryNetworkConfig

VOCAB, WIDTH, HOPS, AGES = 13, 6, 3, 4
CONFIG = MemoryNetworkConfig(vocab=VOCAB, width=WIDTH, hops=HOPS, max_facts=AGES)
FACTS = random_ids(2, 5, 4, vocab=VOCAB)
FACTS[0, 1, 2:] = FACTS[1, 0, 3:] = FACTS[1, 3:] = 0
QUESTION = random_ids(2, 3, vocab=VOCAB, seed=1)
QUESTION[1, 2:] = 0


def network(**fields):
    model = MemoryNetwork(CONFIG.replace(**fields))
    for i, variable in enumerate(model.trainable_variables):
        variable.assign(random(*variable.shape, seed=i, scale=0.5))
    return model


def sentence(table, words, position_encoding):
    """Σ_j l_j ∘ E x_j, entry by entry of section 4.1."""
    words = [w for w in words if w]
    vector, big_j = np.zeros(WIDTH), len(words)
    for j, word in enumerate(words, start=1):
        for k in range(1, WIDTH + 1):
            weight = (1 - j / big_j) - (k / WIDTH) * (1 - 2 * j / big_j)
            vector[k - 1] += (weight if position_encoding else 1) * table[word, k - 1]
    return vector


def answer(embeddings, carry, weights, facts, question, position_encoding=True):
    """Logits and p of every hop. `embeddings`: (A, C) of each hop and B, each (table, ages)."""
    facts = [fact for fact in facts if fact.any()]
    *hops, (b, _) = embeddings
    u, scores = sentence(b, question, position_encoding), []
    for (a, t_a), (c, t_c) in hops:
        ages = [min(len(facts) - 1 - i, AGES - 1) for i in range(len(facts))]
        pairs = list(zip(facts, ages, strict=True))
        m = np.array([sentence(a, x, position_encoding) + t_a[age] for x, age in pairs])
        out = np.array([sentence(c, x, position_encoding) + t_c[age] for x, age in pairs])
        p = formulas.softmax(m @ u)
        scores.append(p)
        u = u @ carry + p @ out
    return u @ weights, scores


def parts(model):
    """(embeddings, H, W) in the form that `answer` takes."""
    memories = model.memories

    def pair(embedding):
        ages = None if embedding.max_facts is None else to_numpy(embedding.ages)
        return to_numpy(embedding.table), ages

    if model.config.layerwise:
        hop = (pair(memories.input_embedding), pair(memories.output_embedding))
        embeddings = [hop] * HOPS + [pair(memories.question_embedding)]
        dense = (memories.carry_dense, memories.answer_dense)
        return embeddings, *(to_numpy(d.kernel) for d in dense)
    pairs = [pair(embedding) for embedding in memories.embeddings]
    hops = [(pairs[k], pairs[k + 1]) for k in range(HOPS)]
    return [*hops, pairs[0]], np.eye(WIDTH), pairs[-1][0].T


@pytest.mark.parametrize("layerwise", [False, True])
@pytest.mark.parametrize("position_encoding", [False, True])
def test_every_equation(layerwise, position_encoding):
    model = network(layerwise=layerwise, position_encoding=position_encoding)
    logits, scores = model.memories(FACTS, QUESTION, return_attention_scores=True)
    for row in range(2):
        expected, hops = answer(*parts(model), FACTS[row], QUESTION[row], position_encoding)
        np.testing.assert_allclose(to_numpy(logits)[row], expected, rtol=1e-4, atol=1e-4)
        real = FACTS[row].any(axis=-1)
        for k in range(HOPS):
            p = to_numpy(scores[k])[row]
            np.testing.assert_allclose(p[real], hops[k], rtol=1e-4, atol=1e-5)
            assert not p[~real].any(), "padding was attended to"


@pytest.mark.parametrize("layerwise", [False, True])
def test_padding_changes_nothing(layerwise):
    """Empty facts before, between or behind the others, empty words in all of them."""
    model = network(layerwise=layerwise)
    expected = to_numpy(model([FACTS, QUESTION]))
    words = np.pad(FACTS, [(0, 0), (0, 0), (0, 2)])
    question = np.pad(QUESTION, [(0, 0), (0, 4)])
    for place in (0, 2, 5):
        padded = np.insert(words, place, 0, axis=1)
        result = to_numpy(model([padded, question]))
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    assert np.isfinite(to_numpy(model([np.zeros_like(FACTS), QUESTION]))).all()
