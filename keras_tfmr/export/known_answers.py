"""Requests to an export with known answers: those that its text model gives in process."""

import itertools

import numpy as np

from keras_tfmr import compat
from keras_tfmr.export.saved_session import first_lines
from keras_tfmr.precision import precision_of
from keras_tfmr.signatures.inputs import utf8

# Short and long texts, with and without accents, which any model of text should answer.
TEXTS = (
    "Bom dia!",
    "Onde fica a estação de comboios mais próxima, por favor?",
    "Ontem choveu tanto que ficámos em casa a ler o livro que a minha irmã nos emprestou.",
    "Não sei.",
)

# Difficult texts, which a model must answer without changing the answers for other texts.
ADVERSARIAL = (
    b"",
    b" \t\n",
    "Olá 👋🏽 👨‍👩‍👧‍👦!".encode(),
    b"Abra `a  b` em https://example.org/c, {nome}!",
    "مرحبا بالعالم".encode(),
    b"\xff\xfe caf\xe9 \xf0\x9f",
    b"nulo \x00 e \x07 sino",
    b"palavra " * 6250,  # 50,000 characters
)


def load_as_users_do(path, cases):
    """Loads a SavedModel by `tf.saved_model.load`, as `keras.layers.TFSMLayer` does, and asks it.

    Unlike a server, that builds all functions again. Returns the problems, as a list of sentences.

    Args:
        path: The folder of the SavedModel.
        cases: Those of `record`, the default signature's first.
    """
    import tensorflow as tf

    for case in cases[:1]:
        try:
            function = tf.saved_model.load(str(path)).signatures["serving_default"]
            inputs = {alias: tf.constant(column[:1]) for alias, column in case["inputs"].items()}
            outputs = function(**inputs)
        except Exception as error:  # any error of the loader is a problem to report
            return [f"tf.saved_model.load, or what it loads, fails: {first_lines(error)}"]
        missing = sorted(set(case["outputs"]) - set(outputs))
        return [f"what tf.saved_model.load loads has no output {alias}" for alias in missing]
    return []


def record(text_model):
    """Test requests with the answers that a `TextModel` gives in process.

    Each text is sent alone, so that comparing these answers with those for a whole batch also shows
    that no row depends on the others.

    Returns:
        A list of cases for `compare`: dicts of a signature, its inputs and its outputs.
    """
    plain = [text.encode() for text in TEXTS]
    rounded = precision_of(text_model.model) != "float32"
    cases = []
    for name in text_model.signatures:
        # Translations of nonsense are so close in score that rounding decides among them.
        adversarial = ADVERSARIAL if name == text_model.default and not rounded else ()
        signature = text_model.declared[name]
        texts = plain[1:2] if signature.large else [*plain, *adversarial]
        # Optimising a signature takes seconds, more than a few answers gain from it.
        with compat.unoptimized_functions():
            case = _case(text_model, name, texts)
        if rounded and signature.certain is not None:
            case["outputs"] = {alias: case["outputs"][alias] for alias in signature.certain}
        cases.append({**case, "rounded": rounded})
    return cases


def _case(text_model, name, texts):
    import tensorflow as tf

    function, inputs = text_model.signatures[name], example(text_model, name, texts)
    rows = [
        function(*(tf.constant(column[i : i + 1]) for column in inputs.values()))
        for i in range(len(texts))
    ]
    outputs = {alias: _joined([row[alias].numpy() for row in rows]) for alias in rows[0]}
    return {"signature": name, "inputs": inputs, "outputs": outputs}


def example(text_model, name, texts):
    """The example of a signature with these texts: {input: array}, in the signature's order."""

    def in_turn(*values):
        return [*itertools.islice(itertools.cycle(values), len(texts))]

    values = {
        "reference": [*texts[::-1]],
        "inputs": [example_of(text) for text in texts],
        # The first word of each text, which becomes another one.
        "terms": [[(text.split() or [text])[0], text[:0]] for text in texts],
        "translations": [[text[:9], text[:0]] for text in texts],
        "length": in_turn(16),  # long enough to go through several steps
        "temperature": in_turn(1.0, 0.0, 0.7),
        "top_k": in_turn(0, 0, 40),
        "top_p": in_turn(0.9, 1.0, 1.0),
        "seed": [*range(len(texts))],
    }
    return {
        alias: np.array(values.get(alias, [*texts]), object if dtype == "string" else dtype)
        for alias, dtype in text_model.declared[name].inputs.items()
    }


def example_of(text):
    """A text as a serialised `tf.train.Example`, of which Classify and Regress take a list."""
    import tensorflow as tf

    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[utf8(text)]))
    message = tf.train.Example(features=tf.train.Features(feature={"text": feature}))
    return message.SerializeToString(deterministic=True)


def _joined(answers):
    """Answers [1, ...] as one batch, padded to the largest."""
    shape = np.max([answer.shape for answer in answers], axis=0)
    empty = b"" if answers[0].dtype == object else 0
    widths = [
        [(0, most - size) for most, size in zip(shape, a.shape, strict=True)] for a in answers
    ]
    return np.concatenate(
        [np.pad(a, width, constant_values=empty) for a, width in zip(answers, widths, strict=True)]
    )


def compare(session, cases, tolerance):
    """Compares a session's answers with known ones; returns the differences as sentences.

    All texts must be equal. If a case is `rounded`, rounding can lead a search from one hypothesis
    to another, whose score is another one too, so that only some of the outputs named `score` must
    be the same.
    """
    problems = []
    for case in cases:
        name = case["signature"]
        try:
            outputs = session.run(name, case["inputs"])
        except Exception as error:  # any error of a kernel is a problem to report
            problems.append(f"signature {name} fails: {first_lines(error)}")
            continue
        problems += _differences(case, outputs, tolerance)
    return problems


def _differences(case, outputs, tolerance):
    name, expected = case["signature"], case["outputs"]
    missing = sorted(set(expected) - set(outputs))
    if missing:
        return [f"signature {name} has no output {', '.join(missing)}"]
    same = {alias: _same(expected[alias], outputs[alias], tolerance) for alias in expected}
    if case.get("rounded") and "score" in same:
        same["score"] = np.any(same["score"])
    return [
        f"signature {name}: output {alias} is {_short(outputs[alias])}, but in process it is"
        f" {_short(expected[alias])}"
        for alias in sorted(expected, key=lambda alias: "score" not in alias)
        if not np.all(same[alias])
    ]


def _same(known, value, tolerance):
    """bool of their shape, whether each element is the same; False if the shapes differ."""
    if known.shape != value.shape:
        return False
    if value.dtype == object:
        return known == value
    return np.isclose(known, value, rtol=tolerance, atol=tolerance)


def _short(value):
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else text[:200] + "…"
