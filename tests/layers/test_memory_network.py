"""The memory network against its paper's equations in NumPy; padding, both tyings, stories."""

import functools

import formulas
import keras
import numpy as np
import pytest
from helpers import POLICIES, check_layer, dtype_policy, random, random_ids, to_numpy
from stories import (
    DROPS,
    MOVES,
    ROOMS,
    TAKES,
    WORDS,
    encode,
    generate,
    one_fact,
    two_facts,
)

from keras_tfmr.recurrent import (
    AdjacentMemories,
    LayerwiseMemories,
    MemoryNetwork,
    MemoryNetworkConfig,
    position_weights,
)

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


def answer(embeddings, carry, weights, facts, question, position_encoding=True, linear=False):
    """Logits and p of every hop. `embeddings`: (A, C) of each hop and B, each (table, ages)."""
    facts = [fact for fact in facts if fact.any()]
    *hops, (b, _) = embeddings
    u, scores = sentence(b, question, position_encoding), []
    for (a, t_a), (c, t_c) in hops:
        ages = [min(len(facts) - 1 - i, AGES - 1) for i in range(len(facts))]
        pairs = list(zip(facts, ages, strict=True))
        m = np.array([sentence(a, x, position_encoding) + t_a[age] for x, age in pairs])
        out = np.array([sentence(c, x, position_encoding) + t_c[age] for x, age in pairs])
        p = m @ u if linear else formulas.softmax(m @ u)
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


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("position_encoding", [False, True])
@pytest.mark.parametrize("layerwise", [False, True])
def test_every_equation(layerwise, position_encoding, linear):
    model = network(layerwise=layerwise, position_encoding=position_encoding)
    logits, scores = model.memories(FACTS, QUESTION, linear=linear, return_attention_scores=True)
    for row in range(2):
        expected, hops = answer(*parts(model), FACTS[row], QUESTION[row], position_encoding, linear)
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


def test_adjacent_tying_shares_and_layerwise_does_too():
    assert network().count_params() == (HOPS + 1) * (VOCAB + AGES) * WIDTH
    layerwise = 2 * (VOCAB + AGES) * WIDTH + 2 * VOCAB * WIDTH + WIDTH * WIDTH
    assert network(layerwise=True).count_params() == layerwise


def test_linear_start_trains_the_same_weights():
    model = network()
    start = model.linear_start()
    logits = model.memories(FACTS, QUESTION, linear=True)
    np.testing.assert_allclose(to_numpy(start([FACTS, QUESTION])), to_numpy(logits), rtol=1e-5)
    before = to_numpy(model([FACTS, QUESTION]))
    start.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    start.train_on_batch([FACTS, QUESTION], np.array([1, 2]))
    assert np.abs(to_numpy(model([FACTS, QUESTION])) - before).max() > 1e-4


def test_position_weights_do_not_count_padding():
    mask = np.array([[True, True, True, False], [False, True, False, True]])
    weights = to_numpy(position_weights(mask, WIDTH))
    assert not weights[~mask].any()
    for row in range(2):
        alone = np.ones((1, mask[row].sum()), bool)
        expected = to_numpy(position_weights(alone, WIDTH))[0]
        np.testing.assert_allclose(weights[row][mask[row]], expected, rtol=1e-6)


@pytest.mark.parametrize("kind", [AdjacentMemories, LayerwiseMemories])
def test_layers(kind, fresh, tmp_path):
    make = functools.partial(kind, VOCAB, 16, hops=2, max_facts=AGES)
    layerwise = kind is LayerwiseMemories
    names = ("float32", "mixed_float16") if layerwise else ("float32", "mixed_bfloat16")
    call = {
        "policies": {name: POLICIES[name] for name in names},
        "quantized": layerwise,  # adjacent tying has nothing but embeddings
        "return_attention_scores": True,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("helpers.functional", functional)
        check_layer(make, [FACTS, QUESTION], fresh, tmp_path, **call)


def functional(layer, arrays, **call):
    """`helpers.functional` with the number of words open too."""
    inputs = [keras.Input((None,) * (array.ndim - 1), dtype=array.dtype) for array in arrays]
    return keras.Model(inputs, layer(*inputs, **call), name="only")


@pytest.mark.parametrize(
    ("layerwise", "policy"), [(False, "mixed_float16"), (True, "mixed_bfloat16")]
)
def test_saved_model_in_another_process(layerwise, policy, fresh, tmp_path):
    with dtype_policy(policy):
        model = MemoryNetwork(CONFIG.replace(layerwise=layerwise))
    logits = model([FACTS, QUESTION])
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    model.save(tmp_path / "model.keras")
    (loaded,) = fresh.outputs(tmp_path / "model.keras", [FACTS, QUESTION])
    np.testing.assert_allclose(loaded, to_numpy(logits), atol=POLICIES[policy])


def test_wrong_inputs_are_named():
    with pytest.raises(ValueError, match=r"`hops` must be a positive integer.*hops=0"):
        MemoryNetworkConfig(hops=0)
    memories = AdjacentMemories(VOCAB, 4, 1, AGES)
    memories(FACTS, QUESTION)
    with pytest.raises(ValueError, match=r"`facts`.*\[batch, facts, words\].*\(2, 5\)"):
        memories(FACTS[:, :, 0], QUESTION)
    with pytest.raises(ValueError, match=r"`question`.*\[batch, words\].*\(2,\)"):
        memories(FACTS, QUESTION[:, 0])
    with pytest.raises(ValueError, match=r"same batch size.*\(2, 5, .\) and \(1, 3\)"):
        memories(FACTS, QUESTION[:1])
    with pytest.raises(ValueError, match="Unknown fields of a MemoryNetworkConfig"):
        MemoryNetworkConfig.from_dict({"width": 3, "depth": 2})


def replay(story):
    """Where everybody and everything is, read from the sentences alone."""
    room, held_by, place = {}, {}, {}
    for person, verb, *rest in story.facts:
        if verb in MOVES:
            room[person] = rest[-1]
        elif verb in TAKES:
            held_by[rest[1]] = person
        else:
            assert verb in DROPS and held_by[rest[1]] == person
            del held_by[rest[1]]
            place[rest[1]] = room[person]
    return room | place | {thing: room[person] for thing, person in held_by.items()}


@pytest.mark.parametrize("make", [one_fact, two_facts])
def test_stories_are_true(make):
    training, test = generate(make, (300, 100), seed=5)
    texts = {str(story[:2]) for story in training}
    assert len(texts) == 300 and not texts & {str(story[:2]) for story in test}
    assert training == generate(make, (300, 100), seed=5)[0]
    for story in training:
        assert replay(story)[story.question[-1]] == story.answer
        told = [story.facts[i] for i in story.support]
        assert len(told) == (1 if make is one_fact else 2)
        assert any(story.answer in fact for fact in told)
        assert make is one_fact or any(story.question[-1] in fact for fact in told)
    assert {story.answer for story in training} == set(ROOMS)


def test_stories_as_ids():
    (stories,) = generate(two_facts, (50,), seed=1)
    facts, questions, answers = encode(stories)
    for row, story in enumerate(stories):
        words = [[WORDS[i] for i in fact if i] for fact in facts[row] if fact.any()]
        assert words == story.facts
        assert [WORDS[i] for i in questions[row]] == story.question
        assert WORDS[answers[row]] == story.answer


def test_learns_to_answer():
    """One supporting fact; the errors that the paper's tasks ask for are a benchmark."""
    training, test = (encode(s) for s in generate(one_fact, (3000, 300), seed=1))
    model = MemoryNetwork(CONFIG.replace(vocab=len(WORDS), width=24, hops=2, max_facts=10))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for phase, epochs in ((model.linear_start(), 3), (model, 7)):
        phase.compile(keras.optimizers.Adam(1e-2, global_clipnorm=1.0), loss)
        phase.fit(training[:2], training[2], batch_size=64, epochs=epochs, verbose=0)
    chosen = model.predict(test[:2], batch_size=300, verbose=0).argmax(axis=-1)
    assert (chosen == test[2]).mean() > 0.95
