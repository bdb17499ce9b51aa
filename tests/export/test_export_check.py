"""The check finds what keeps TensorFlow Serving from loading or answering, in anybody's model."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("SavedModels need TensorFlow", allow_module_level=True)

import tensorflow as tf

from keras_tfmr.export import check, warmup
from keras_tfmr.export.check import check_saved_model
from keras_tfmr.export.graph_checks import TEXT_OPS, core_ops

TEXT = tf.TensorSpec([None], tf.string, name="text")
NUMBERS = tf.TensorSpec([None, 8], tf.float32, name="x")


class Dense(tf.Module):
    """A matrix, once or twice."""

    def __init__(self, copies=1):
        super().__init__()
        values = np.random.default_rng(0).normal(size=(8, 8)).astype("float32")
        self.kernels = [tf.Variable(values) for _ in range(copies)]

    @tf.function(input_signature=[NUMBERS])
    def call(self, x):
        for kernel in self.kernels:
            x = x @ kernel
        return {"y": x}


def save(path, module, function, warm=()):
    tf.saved_model.save(module, str(path), signatures={"serving_default": function})
    if warm:
        warmup.write(path, warm)
    return path


def save_texts(path, function, **options):
    """A model of one function from strings to a dict."""
    module = tf.Module()
    module.function = tf.function(function, input_signature=[TEXT])
    return save(path, module, module.function, **options)


def upper(text):
    return {"text": tf.strings.upper(text)}


def only_problem(report):
    assert len(report.problems) == 1, report.problems
    return report.problems[0]


def test_a_sound_model_has_no_problems(tmp_path):
    module = Dense()
    report = check_saved_model(save(tmp_path / "1", module, module.call))
    assert report.problems == []
    assert (report.facts["variables"], report.facts["variable bytes"]) == (1, 256)
    report = check_saved_model(
        save_texts(tmp_path / "2", upper, warm=[("serving_default", {"text": ["a", "b"]})])
    )
    assert report.problems == [] and report.facts["warm-up requests"] == 1


def test_python_inside_the_graph_is_found(tmp_path):
    path = save_texts(tmp_path, lambda text: {"y": tf.py_function(lambda t: t, [text], tf.string)})
    assert "EagerPyFunc calls Python" in only_problem(check_saved_model(path))


def test_an_op_the_server_lacks_is_found(tmp_path, monkeypatch):
    path = save_texts(tmp_path, upper)
    ops = core_ops() - {"StringUpper"}
    monkeypatch.setattr("keras_tfmr.export.graph_checks.core_ops", lambda: ops)
    assert "StringUpper is not an op of TensorFlow Serving" in only_problem(check_saved_model(path))


def test_the_server_has_text_ops_and_no_younger_ones():
    import tensorflow_text  # noqa: F401  (loading it must not make a difference)

    ops = core_ops()
    assert {"MatMul", "While", "StringUpper", "XlaLaunch", "DynamicPartition"} <= ops
    assert not ops & {"PyFunc", "EagerPyFunc", "PyFuncStateless", "DecodeJxl"}
    assert not ops & TEXT_OPS and len(TEXT_OPS) == 38


def test_weights_nobody_reads_are_found(tmp_path):
    module = Dense()
    module.momentum = tf.Variable(tf.zeros([8, 8]))
    problem = only_problem(check_saved_model(save(tmp_path, module, module.call)))
    assert "512 bytes in 2 variables" in problem and "256 bytes in 1" in problem


def test_a_keras_layer_that_the_server_cannot_restore_is_found(tmp_path):
    module = tf.Module()
    module.layer = keras.layers.Dense(8, use_bias=False)
    module.layer.build((None, 8))
    module.call = tf.function(lambda x: {"y": module.layer(x)}, input_signature=[NUMBERS])
    save(tmp_path, module, module.call)
    tf.saved_model.load(str(tmp_path)).signatures["serving_default"](x=tf.ones([1, 8]))
    problems = check_saved_model(tmp_path).problems
    assert any("Could not find variable" in p or "signatures read" in p for p in problems), problems


def test_a_pinned_node_is_found(tmp_path):
    def on_gpu(text):
        with tf.device("/GPU:0"):
            return {"text": tf.identity(text)}

    problem = only_problem(check_saved_model(save_texts(tmp_path / "1", on_gpu)))
    assert "is pinned to" in problem and "GPU:0" in problem

    def on_cpu(text):
        with tf.device("/CPU:0"):
            return {"text": tf.identity(text)}

    assert check_saved_model(save_texts(tmp_path / "2", on_cpu)).problems == []


def test_what_is_compiled_needs_a_server_that_compiles(tmp_path):
    @tf.function(jit_compile=True)
    def double(x):
        return x * 2

    module = tf.Module()
    module.call = tf.function(lambda x: {"y": double(x)}, input_signature=[NUMBERS])
    save(tmp_path, module, module.call)
    assert "--xla_cpu_compilation_enabled" in only_problem(check_saved_model(tmp_path))


def test_a_batch_that_fails_is_found(tmp_path):
    path = save_texts(tmp_path, lambda text: {"text": tf.reshape(text, [1])})
    problems = check_saved_model(path).problems
    assert [problem.partition(":")[0] for problem in problems] == [
        "signature serving_default fails for a batch of 3",
        "signature serving_default fails for a batch of 0",
    ]


def test_answers_that_cannot_be_divided_among_requests_are_found(tmp_path):
    path = save_texts(tmp_path, lambda text: {"all": tf.strings.reduce_join(text)})
    assert "cannot be batched" in check_saved_model(path).problems[0]


def test_strings_that_are_not_utf8_are_found(tmp_path):
    def broken(text):
        return {
            "text": tf.strings.join([text, b"\xff"]),
            "raw_bytes": tf.fill([tf.size(text)], b"\xff"),
        }

    problems = check_saved_model(save_texts(tmp_path, broken)).problems
    assert len(problems) == 2, "for batches of 1 and 3; a name in _bytes promises nothing"
    assert "output text is not UTF-8" in problems[0]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (("absent", {"text": ["a"]}), "there is no signature absent"),
        (("serving_default", {"words": ["a"]}), "serving_default expects the inputs ['text']"),
    ],
)
def test_a_warmup_request_that_fails_is_found(tmp_path, request_, said):
    good = ("serving_default", {"text": ["a"]})
    problem = only_problem(check_saved_model(save_texts(tmp_path, upper, warm=[good, request_])))
    assert problem.startswith("warm-up request 2 fails") and said in problem


def test_a_warmup_file_that_is_none_is_found(tmp_path):
    path = save_texts(tmp_path, upper, warm=[("serving_default", {"text": ["a"]})])
    with (path / warmup.FILE).open("r+b") as file:
        file.seek(20)
        file.write(b"?")
    assert "warm-up request 1 fails" in only_problem(check_saved_model(path))
    with tf.io.TFRecordWriter(str(path / warmup.FILE)) as writer:
        writer.write(b"")
    assert "the record holds no request" in only_problem(check_saved_model(path))
    good = ("serving_default", {"text": ["a"]})
    with pytest.raises(ValueError, match=r"at most 1000.*1001"):
        warmup.write(path, [good] * 1001)


def test_a_wrong_answer_is_found(tmp_path):
    def answer(text):
        return {"translation": tf.strings.upper(text), "score": tf.ones([tf.size(text)])}

    path = save_texts(tmp_path, answer)

    def problems(translation, score, **options):
        outputs = {"translation": np.array([translation.encode()], object)}
        outputs["score"] = np.array([score], "float32")
        inputs = {"text": np.array([b"a"], object)}
        case = {"signature": "serving_default", "inputs": inputs, "outputs": outputs}
        return check_saved_model(path, [case], **options).problems

    assert problems("A", 1.0) == []
    [problem] = problems("B", 1.00001)
    assert "output translation is [b'A'], but in process it is [b'B']" in problem
    assert len(problems("B", 2.0)) == 2
    [problem] = problems("A", 1.1)
    assert "output score is [1.], but in process it is [1.1]" in problem
    assert problems("A", 1.1, tolerance=0.2) == []


def test_what_is_no_servable_is_found(tmp_path):
    assert "no saved_model.pb" in only_problem(check_saved_model(tmp_path))
    (tmp_path / "saved_model.pb").write_bytes(b"not a model")
    assert "is not a SavedModel" in only_problem(check_saved_model(tmp_path))
    path = save_texts(tmp_path / "1", upper)
    data = (path / "saved_model.pb").read_bytes()
    (path / "saved_model.pb").write_bytes(data.replace(b"\x05serve", b"\x05train"))
    assert "[['train']]" in only_problem(check_saved_model(path))


def test_lost_weights_are_found(tmp_path):
    module = Dense()
    save(tmp_path, module, module.call)
    for file in (tmp_path / "variables").glob("*.data*"):
        file.unlink()
    assert "does not load" in only_problem(check_saved_model(tmp_path))
    for file in (tmp_path / "variables").iterdir():
        file.unlink()
    assert "0 bytes in 0 variables" in only_problem(check_saved_model(tmp_path))


def test_the_command_reports_and_exits(tmp_path, capsys):
    path = save_texts(tmp_path / "1", upper)
    assert check.main([str(path)]) == 0 and "sound" in capsys.readouterr().out
    with check.FreshProcess(path) as process:
        report = process.report([{"signature": "other", "inputs": {}, "outputs": {}}])
    assert report.problems == ["there is no signature other"]


def test_a_process_that_dies_is_a_problem(tmp_path, monkeypatch):
    path = save_texts(tmp_path / "1", upper)
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\necho falling >&2\nkill -SEGV $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(check.sys, "executable", str(dying))
    with check.FreshProcess(path) as process:
        process._process.wait(timeout=60)  # it is dead before it is asked
        problem = only_problem(process.report())
    assert "died with code -11" in problem and "falling" in problem
    dying.write_text("#!/bin/sh\nexec sleep 60\n")
    with check.FreshProcess(path) as process:
        assert "did not end within 0.5 s" in only_problem(process.report(timeout=0.5))
