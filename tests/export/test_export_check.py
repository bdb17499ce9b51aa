"""The check finds what keeps TensorFlow Serving from loading an export, or from answering as it."""

import numpy as np
import pytest
import tensorflow as tf
from text_models import Plain, tiny_model, tiny_translator

from keras_tfmr import compat
from keras_tfmr.export import check, known_answers, warmup
from keras_tfmr.precision import with_precision

TEXT = tf.TensorSpec([None], tf.string, name="text")


def save(path, function, module=None):
    """A SavedModel of one function from strings to a dict."""
    module = module or tf.Module()
    module.function = tf.function(function, input_signature=[TEXT])
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.function})
    return path


def upper(text):
    return {"text": tf.strings.upper(text)}


def only_problem(path, *cases, tolerance=1e-4):
    [problem] = check.problems_of(path, cases, tolerance)
    return problem


def graph(function):
    return (
        tf.function(function, input_signature=[TEXT]).get_concrete_function().graph.as_graph_def()
    )


@tf.function(jit_compile=True)
def compiled(text):
    return tf.strings.length(text) * 2


def test_an_operation_that_the_server_lacks_is_found(monkeypatch):
    import tensorflow_text  # noqa: F401  whose operations it has

    python = graph(lambda text: {"y": tf.py_function(lambda t: t, [text], tf.string)})
    [problem] = check.missing_operations(python)
    assert "EagerPyFunc calls Python" in problem and "in the main graph" in problem
    [problem] = check.missing_operations(graph(lambda text: {"y": compiled(text)}))
    assert "needs XLA" in problem
    sound = graph(upper)
    assert check.missing_operations(sound) == []
    sound.node[0].op, sound.node[0].attr["Tshape"].i = "TensorListGetItem", 1
    assert "does not know TensorListGetItem's Tshape" in check.missing_operations(sound)[0]
    ops = compat.registered_ops() - {"StringUpper"}
    monkeypatch.setattr(compat, "registered_ops", lambda: ops)
    [problem] = check.missing_operations(graph(upper))
    assert "StringUpper is not an operation of TensorFlow Serving" in problem


@pytest.mark.ci
def test_a_warmup_file_that_fails_is_found(tmp_path):
    good = ("serving_default", {"text": ["a"]})
    path = save(tmp_path, upper)
    for request, said in (
        (("absent", {"text": ["a"]}), "there is no signature absent"),
        (("serving_default", {"words": ["a"]}), "serving_default expects the inputs ['text']"),
    ):
        warmup.write(path, [good, request])
        problem = only_problem(path)
        assert problem.startswith("warm-up request 2 fails") and said in problem
    content = bytearray((path / warmup.FILE).read_bytes())
    content[20] ^= 1
    (path / warmup.FILE).write_bytes(content)
    assert "warm-up request 1 fails" in only_problem(path)
    with tf.io.TFRecordWriter(str(path / warmup.FILE)) as writer:
        writer.write(b"")
    assert "the record holds no request" in only_problem(path)


@pytest.mark.ci
def test_a_wrong_answer_is_found(tmp_path):
    def answer(text):
        return {"translation": tf.strings.upper(text), "score": tf.ones([tf.size(text)])}

    path = save(tmp_path, answer)

    def problems(tolerance=1e-4, text=b"a", **outputs):
        case = ("serving_default", {"text": np.array([text], object)}, outputs)
        return check.problems_of(path, [case], tolerance)

    text, one, other = np.array([b"A"], object), np.ones(1, "float32"), np.array([1.1], "float32")
    assert problems(translation=text, score=one) == [] == problems(tolerance=0.2, score=other)
    for outputs, said in (
        ({"translation": np.array([b"B"], object)}, "translation is [b'A'], but in .* is [b'B']"),
        ({"score": other, "translation": text}, "output score is [1.], but in process it is [1.1]"),
        ({"score": np.ones(2, "float32")}, "output score is [1.], but in process it is [1. 1.]"),
        ({"length": one}, "has no output length"),
    ):
        [problem] = problems(**outputs)
        assert all(part in problem for part in said.split(" .* "))
    [problem] = check.problems_of(path, [("absent", {}, {})], 1e-4)
    assert problem.startswith("signature absent fails")


@pytest.mark.ci
def test_of_a_rounded_model_only_what_no_search_decides_is_known():
    model, options = with_precision(tiny_model(), "bfloat16"), {"num_return_sequences": 1}
    translator = tiny_translator(model, kind=Plain, num_beams=1, **options)
    outputs = {name: outputs for name, _, outputs in known_answers.cases(translator)}
    assert outputs["translate"] == {} and {*outputs["score"]} >= {"log_prob"}


@pytest.mark.ci
def test_lost_weights_are_found(tmp_path):
    module = tf.Module()
    module.kernel = tf.Variable(tf.ones([8]))
    path = save(tmp_path, lambda text: {"y": module.kernel[: tf.size(text)]}, module)
    for file in (tmp_path / "variables").glob("*.data*"):
        file.unlink()
    assert "does not load" in only_problem(path)


@pytest.mark.ci
def test_a_process_that_dies_is_a_problem(tmp_path, monkeypatch):
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\necho falling >&2\nkill -SEGV $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(check.sys, "executable", str(dying))
    [problem] = check.problems_in_new_process(tmp_path, [])
    assert "died with code -11" in problem and "falling" in problem
    dying.write_text("#!/bin/sh\nexec sleep 60\n")
    problems = check.problems_in_new_process(tmp_path, [], timeout=0.5)
    assert problems == ["the check did not end within 0.5 s"]
