"""Test requests to a SavedModel: made up from its signatures, or with known answers."""

import numpy as np

from keras_tfmr import compat
from keras_tfmr.export.saved_session import first_lines
from keras_tfmr.faster.precision import precision_of

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


def run_batches(session, name, batches):
    """Runs a signature with made-up inputs; returns the problems, as a list of sentences.

    If the first dimension is unknown, it gets each size of `batches`, and outputs must have as many
    rows. Strings must be UTF-8, unless the output's name ends in `_bytes`. The Examples for
    Classify and Regress have one feature, `text`.
    """
    definition = session.signatures[name]
    batched = all(_open(info) for info in definition.inputs.values())
    problems = []
    for batch in batches if batched else (1,):
        inputs = {
            alias: _made_up(info, batch, definition.method_name)
            for alias, info in definition.inputs.items()
        }
        try:
            outputs = session.run(name, inputs)
        except Exception as error:  # any error of a kernel is a problem to report
            problems.append(f"signature {name} fails for a batch of {batch}: {first_lines(error)}")
            continue
        for alias, value in outputs.items():
            problem = _output_problem(alias, np.asarray(value), batch if batched else None)
            if problem:
                problems.append(f"signature {name}, batch of {batch}: {problem}")
    return problems


def _open(info):
    shape = info.tensor_shape
    return shape.unknown_rank or (len(shape.dim) > 0 and shape.dim[0].size == -1)


def _made_up(info, batch, method):
    import tensorflow as tf

    from keras_tfmr.signatures.inputs import example_of

    dtype = tf.as_dtype(info.dtype)
    sizes = [-1] if info.tensor_shape.unknown_rank else [d.size for d in info.tensor_shape.dim]
    shape = [size if size >= 0 else 1 for size in sizes]
    if sizes and sizes[0] == -1:
        shape[0] = batch
    if dtype == tf.string:
        count = int(np.prod(shape))
        texts = [TEXTS[i % len(TEXTS)].encode() for i in range(count)]
        if method in (tf.saved_model.CLASSIFY_METHOD_NAME, tf.saved_model.REGRESS_METHOD_NAME):
            texts = [example_of(text) for text in texts]
        return np.array(texts, dtype=object).reshape(shape)
    return np.ones(shape, dtype.as_numpy_dtype)


def _output_problem(alias, value, batch):
    if batch is not None and (value.ndim == 0 or value.shape[0] != batch):
        return f"output {alias} has shape {list(value.shape)}, so requests cannot be batched"
    if value.dtype == object and not alias.endswith("_bytes"):
        for text in value.flat:
            try:
                text.decode("utf-8")
            except UnicodeDecodeError as error:
                return f"output {alias} is not UTF-8 ({error}); JSON cannot carry it"
    return None


def load_as_users_do(session, path):
    """Loads a SavedModel and calls it by `tf.saved_model.load`, as `keras.layers.TFSMLayer` does.

    Unlike a server, that builds all functions again. Returns the problems, as a list of sentences.
    """
    import tensorflow as tf

    name = min(session.signatures, key=lambda name: (name != "serving_default", name))
    definition = session.signatures[name]
    try:
        inputs = {
            alias: tf.constant(_made_up(info, 1, definition.method_name))
            for alias, info in definition.inputs.items()
        }
        outputs = tf.saved_model.load(str(path)).signatures[name](**inputs)
    except Exception as error:  # any error of the loader is a problem to report
        return [f"tf.saved_model.load, or what it loads, fails: {first_lines(error)}"]
    missing = sorted(set(definition.outputs) - set(outputs))
    return [f"what tf.saved_model.load loads has no output {alias}" for alias in missing]


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
    signature = text_model.declared[name]
    values = signature.example(texts)
    return {
        alias: np.array(values[alias], object if dtype == "string" else dtype)
        for alias, dtype in signature.inputs.items()
    }


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
