"""Classifier and completer: against the models' own forward pass, alone and in batches."""

import numpy as np
import pytest
import tensorflow as tf
from formulas import log_softmax
from text_models import ADVERSARIAL, KINDS, LABELS, LINES, by_hand, tokenizer

from keras_tfmr import Classifier
from keras_tfmr.export.known_answers import request_of


@pytest.fixture(scope="module")
def models():
    return {kind: make() for kind, make in KINDS.items()}


def softmax(logits):
    return np.exp(log_softmax(np.asarray(logits, "float64")))


def answers(model, signature, texts, rows=slice(None)):
    """What a signature answers to some rows of the request for texts, as NumPy arrays."""
    columns = (tf.constant(column[rows]) for column in request_of(model, signature, texts).values())
    outputs = model.signatures[signature](*columns)
    return {name: value.numpy() for name, value in outputs.items()}


def ids_of(text, length=24):
    return tokenizer().encode_truncated([text], length)[0].numpy()


def test_labels_are_the_softmax_of_the_model(models):
    found = models["classifier"].classify(LINES)
    for text, classification in zip(LINES, found, strict=True):
        expected = softmax(models["classifier"].model(ids_of(text)))[0]
        probabilities = list(classification.probabilities.values())
        assert probabilities == sorted(probabilities, reverse=True)
        assert classification.label == LABELS[expected.argmax()]
        by_label = [classification.probabilities[label] for label in LABELS]
        np.testing.assert_allclose(by_label, expected, atol=1e-5)
    assert len({classification.label for classification in found}) > 1, "it ignores the text"


def test_greedy_completion_is_the_full_forward_pass_repeated(models):
    """Of a long prompt, only the end is read."""
    model = models["completer"].model
    prompts = ["", "Bom", "The black cat", "gato preto " * 5000 + "O que"]
    found = models["completer"].complete(prompts, length=9, temperature=0)
    for prompt, one in zip(prompts, found, strict=True):
        given = tokenizer().encode([prompt]).to_list()[0][-24:]
        ids, log_prob = by_hand(lambda ids: model(ids)[0, -1], 9, prompt=given)
        ends = [tokenizer().decode(np.array([row])).numpy()[0] for row in (given, given + ids)]
        assert ends[1].decode() == ends[0].decode() + one.text
        assert one.tokens == len(ids) and one.finished == (ids[-1] == tokenizer().eos_id)
        assert one.log_prob == pytest.approx(log_prob, abs=1e-3)
    assert [one.truncated for one in found] == [False] * 3 + [True]


def test_log_prob_is_the_sum_over_the_whole_text(models):
    texts = ["", "Bom", *LINES]
    found = models["completer"].log_prob(texts)
    for text, likelihood in zip(texts, found, strict=True):
        ids = ids_of(text)
        fed = np.concatenate([[[tokenizer().bos_id]], ids[:, :-1]], axis=1)
        log_probs = log_softmax(models["completer"].model(fed).numpy())[0]
        expected = log_probs[np.arange(ids.shape[1]), ids[0]].sum()
        assert likelihood.log_prob == pytest.approx(expected, abs=1e-3)
        assert likelihood.tokens == ids.shape[1]


def test_a_seed_gives_one_text_whatever_is_asked_beside_it(models):
    model = models["completer"]
    prompts = [*LINES, "", "Bom"]
    options = {"temperature": 1.5, "top_p": 0.95, "length": 12}
    together = model.complete(prompts, seed=7, **options)
    for place in (0, 3, 7):
        [alone] = model.complete([prompts[place]], seed=7 + place, **options)
        assert alone.text == together[place].text
        assert alone.log_prob == pytest.approx(together[place].log_prob, abs=1e-3)
    texts = {found.text for found in model.complete([LINES[0]] * 8, seed=1, **options)}
    assert len(texts) > 4, "each prompt has a seed of its own"


def test_options_that_make_no_sense_are_named_and_do_not_spoil_a_batch(models):
    """The graph has an answer to them: other callers' rows are in the same batch."""
    model, nan, inf = models["completer"], float("nan"), float("inf")
    for name, value in (("length", 21), ("temperature", -1), ("top_k", -1), ("top_p", 2)):
        with pytest.raises(ValueError, match=name):
            model.complete(["Bom"], **{name: value})

    def ask(*rows):
        kinds = (tf.string, tf.int32, tf.float32, tf.int32, tf.float32, tf.int64)
        inputs = zip(zip(*rows, strict=True), kinds, strict=True)
        outputs = model.signatures["complete"](*(tf.constant(x, kind) for x, kind in inputs))
        return {name: value.numpy() for name, value in outputs.items()}

    good = ("Bom", 6, 0.9, 5, 0.9, 3)
    mixed = ask(
        good,
        ("Bom", -2, 1.0, 0, 1.0, 0),
        ("Bom", 2**30, nan, -7, nan, -1),
        ("Bom", 6, inf, 2**31 - 1, -1.0, 2**62),
        ("Bom", 6, -1.0, 0, 99.0, 0),
    )
    assert mixed["text"][0] == ask(good)["text"][0]
    assert mixed["tokens"][1] == 0 and mixed["text"][1] == b"" and mixed["log_prob"][1] == 0
    assert 0 < mixed["tokens"][2] <= 20
    assert np.isfinite(mixed["log_prob"]).all()
    [likeliest] = model.complete(["Bom"], length=6, temperature=0)
    assert mixed["text"][4].decode() == likeliest.text


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_rows_leave_their_neighbours_alone(models, kind):
    """In any number of rows, with a function that is traced once."""
    model = models[kind]
    for signature, function in model.signatures.items():
        assert all(len(value) == 0 for value in answers(model, signature, []).values())
        together = answers(model, signature, ADVERSARIAL)
        for row in (0, 3, 4, 6):
            found = answers(model, signature, ADVERSARIAL, slice(row, row + 1))
            for name, value in found.items():
                alone, mine = value[0], together[name][row]
                if np.ndim(mine):  # the batch is padded to its longest row
                    mine, rest = mine[: len(alone)], mine[len(alone) :]
                    assert not rest.any()
                if together[name].dtype == object:
                    assert np.all(mine == alone)
                    [text.decode("utf-8") for text in np.ravel(mine)]
                else:
                    np.testing.assert_allclose(mine, alone, atol=1e-3)
        assert function.experimental_get_tracing_count() == 1


def test_labels_and_sizes_that_do_not_fit_are_named(models):
    with pytest.raises(ValueError, match=r"3 classes.*\['a', 'b'\]"):
        Classifier(models["classifier"].model, tokenizer(), ["a", "b"])
    with pytest.raises(ValueError, match="label of its own"):
        Classifier(models["classifier"].model, tokenizer(), ["a", "b", "a"])
    with pytest.raises(ValueError, match="max_new_tokens must be at least 1"):
        KINDS["completer"](max_new_tokens=0)
