"""The check finds what keeps TensorFlow Serving from loading an export, or from answering as it."""

import types

import numpy as np
import pytest
import tensorflow as tf
from keras_tfmr.faster.precision import with_precision
from tensorflow.core.protobuf import saved_model_pb2
from text_models import Plain, tiny_model, tiny_translator

from keras_tfmr import compat
from keras_tfmr.export import check, graph_edits, known_answers, served_ops, warmup

TEXT = tf.TensorSpec([None], tf.string, name="text")


def save(path, function, module=None, warm=()):
    """A SavedModel of one function from strings to a dict."""
    module = module or tf.Module()
    module.function = tf.function(function, input_signature=[TEXT])
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.function})
    if warm:
        warmup.write(path, warm)
    return path


def upper(text):
    return {"text": tf.strings.upper(text)}


def case(text, **outputs):
    """A known answer of `serving_default`."""
    inputs = {"text": np.array([text.encode()], object)}
    return {"signature": "serving_default", "inputs": inputs, "outputs": outputs}


def only_problem(path, *cases, tolerance=1e-4):
    [problem] = check.problems_of(path, lambda: cases, tolerance)
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
    [problem] = served_ops.problems_of(python)
    assert "EagerPyFunc calls Python" in problem and "in the main graph" in problem
    [problem] = served_ops.problems_of(graph(lambda text: {"y": compiled(text)}))
    assert "needs XLA" in problem
    sound = graph(upper)
    assert served_ops.problems_of(sound) == []
    sound.node[0].op, sound.node[0].attr["Tshape"].i = "TensorListGetItem", 1
    assert "does not know TensorListGetItem's Tshape" in served_ops.problems_of(sound)[0]
    ops = compat.registered_ops() - {"StringUpper"}
    monkeypatch.setattr(compat, "registered_ops", lambda: ops)
    [problem] = served_ops.problems_of(graph(upper))
    assert "StringUpper is not an operation of TensorFlow Serving" in problem


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
    with pytest.raises(ValueError, match=r"at most 1000.*1001"):
        warmup.write(path, [good] * 1001)


def test_what_a_session_runs_and_python_does_not_load_is_found(tmp_path):
    """The functions for gradients, which only Python loads, refer to what was dropped."""

    def twice(text):
        x = tf.cast(tf.strings.length(text), tf.float32)
        return {"y": tf.nn.silu(tf.nn.silu(x))}

    path = save(tmp_path, twice)
    saved_model = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    graph_edits.prune(saved_model.meta_graphs[0].graph_def)
    (path / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    known = case("a", y=np.array([0.507], "float32"))
    assert "tf.saved_model.load" in only_problem(path, known, tolerance=1e-2)


def test_a_wrong_answer_is_found(tmp_path):
    def answer(text):
        return {"translation": tf.strings.upper(text), "score": tf.ones([tf.size(text)])}

    path = save(tmp_path, answer)

    def problems(translation, score, tolerance=1e-4):
        outputs = {"translation": np.array([translation.encode()], object)}
        outputs["score"] = np.array([score], "float32")
        return check.problems_of(path, lambda: [case("a", **outputs)], tolerance)

    assert problems("A", 1.0) == [] == problems("A", 1.1, tolerance=0.2)
    [problem] = problems("B", 1.00001)
    assert "output translation is [b'A'], but in process it is [b'B']" in problem
    [problem] = problems("A", 1.1)
    assert "output score is [1.], but in process it is [1.1]" in problem


def test_what_rounding_may_change_and_what_not():
    """Some searches may find something else; nothing else may differ, and each failure is named."""
    texts, scores = np.array([b"a", b"b"], object), np.array([1.0, 2.0], "float32")
    known = {"signature": "s", "inputs": {}, "outputs": {"text": texts, "score": scores}}

    def problems(outputs, **rounded):
        session = types.SimpleNamespace(run=lambda *asked: outputs)
        return known_answers.compare(session, [{**known, **rounded}], 1e-3)

    other = {"text": texts, "score": np.array([1.0, 3.0], "float32")}
    assert problems(other, rounded=True) == [] and "output score" in problems(other)[0]
    assert "output score" in problems({**other, "score": scores + 1}, rounded=True)[0]
    assert "output text" in problems({**other, "text": texts[::-1]}, rounded=True)[0]
    assert "output score" in problems({"text": texts, "score": scores[:1]}, rounded=True)[0]
    assert problems({"text": texts}) == ["signature s has no output score"]
    failing = types.SimpleNamespace(run=lambda *asked: [][0])
    assert known_answers.compare(failing, [known], 1e-3)[0].startswith("signature s fails: list")


def test_what_a_search_decides_is_not_certain_when_rounded():
    """Two searches of one model, as rounding leads one elsewhere; a model that differs is found."""
    model = with_precision(tiny_model(), "bfloat16")
    known = known_answers.record(tiny_translator(model, kind=Plain, num_beams=3))

    def problems(translator):
        def run(name, inputs):
            outputs = translator.signatures[name](*map(tf.constant, inputs.values()))
            return {alias: value.numpy() for alias, value in outputs.items()}

        return known_answers.compare(types.SimpleNamespace(run=run), known, 5e-2)

    assert problems(tiny_translator(model, kind=Plain, num_beams=2)) == []
    other = with_precision(tiny_model(norm_first=True), "bfloat16")
    assert "signature score" in "".join(problems(tiny_translator(other, kind=Plain)))


def test_lost_weights_are_found(tmp_path):
    module = tf.Module()
    module.kernel = tf.Variable(tf.ones([8]))
    path = save(tmp_path, lambda text: {"y": module.kernel[: tf.size(text)]}, module)
    for file in (tmp_path / "variables").glob("*.data*"):
        file.unlink()
    assert "does not load" in only_problem(path)


def test_a_process_that_dies_is_a_problem(tmp_path, monkeypatch):
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\necho falling >&2\nkill -SEGV $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(check.sys, "executable", str(dying))
    with check.FreshProcess(tmp_path) as process:
        process._process.wait(timeout=60)  # it is dead before it is asked
        [problem] = process.problems()
    assert "died with code -11" in problem and "falling" in problem
    dying.write_text("#!/bin/sh\nexec sleep 60\n")
    with check.FreshProcess(tmp_path) as process:
        assert process.problems(timeout=0.5) == ["the check did not end within 0.5 s"]
