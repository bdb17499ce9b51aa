"""The check finds what keeps TensorFlow Serving from loading or answering, in anybody's model."""

import re
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from text_models import Plain, tiny_model, tiny_translator

from keras_tfmr.export import check, graph_edits, known_answers, warmup
from keras_tfmr.export.check import check_saved_model
from keras_tfmr.export.graph_checks import TEXT_OPS, core_ops
from keras_tfmr.faster.precision import with_precision

TEXT = tf.TensorSpec([None], tf.string, name="text")
NUMBERS = tf.TensorSpec([None, 8], tf.float32, name="x")


class Dense(tf.Module):
    """A matrix."""

    def __init__(self):
        super().__init__()
        self.kernel = tf.Variable(np.random.default_rng(0).normal(size=(8, 8)).astype("float32"))

    @tf.function(input_signature=[NUMBERS])
    def call(self, x):
        return {"y": x @ self.kernel}


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


def on(device):
    def function(text):
        with tf.device(device):
            return {"text": tf.identity(text)}

    return function


FUNCTIONS = {  # of texts: what the check says of each
    "Python": (
        lambda text: {"y": tf.py_function(lambda t: t, [text], tf.string)},
        ["EagerPyFunc calls Python"],
    ),
    "a pinned node": (on("/GPU:0"), ["is pinned to.*GPU:0"]),
    "a node on the processor": (on("/CPU:0"), []),
    "a batch that fails": (
        lambda text: {"text": tf.reshape(text, [1])},
        [f"signature serving_default fails for a batch of {n}:" for n in (3, 0)],
    ),
    "answers that cannot be divided among requests": (
        lambda text: {"all": tf.strings.reduce_join(text)}, 3 * ["cannot be batched"]
    ),
    "no UTF-8": (  # for batches of 1 and 3; a name in _bytes promises nothing
        lambda text: {
            "text": tf.strings.join([text, b"\xff"]),
            "raw_bytes": tf.fill([tf.size(text)], b"\xff"),
        },
        2 * ["output text is not UTF-8"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_the_server_cannot_do_is_found(tmp_path, name):
    function, expected = FUNCTIONS[name]
    problems = check_saved_model(save_texts(tmp_path, function)).problems
    for problem, said in zip(problems, expected, strict=True):
        assert re.search(said, problem), problem


def test_an_op_the_server_lacks_is_found(tmp_path, monkeypatch):
    path = save_texts(tmp_path, upper)
    ops = core_ops() - {"StringUpper"}
    monkeypatch.setattr("keras_tfmr.export.graph_checks.core_ops", lambda: ops)
    assert "StringUpper is not an op of TensorFlow Serving" in only_problem(check_saved_model(path))


def test_the_server_has_text_ops_and_no_younger_ones():
    import tensorflow_text  # noqa: F401  (loading it must not make a difference)

    assert {"MatMul", "StringUpper", "XlaLaunch"} <= core_ops()
    assert not core_ops() & {"PyFunc", "EagerPyFunc", "DecodeJxl", *TEXT_OPS}


def test_a_sound_model_and_weights_that_nobody_reads(tmp_path):
    module = Dense()
    report = check_saved_model(save(tmp_path / "1", module, module.call))
    assert report.problems == []
    assert (report.facts["variables"], report.facts["variable bytes"]) == (1, 256)
    module.momentum = tf.Variable(tf.zeros([8, 8]))
    problem = only_problem(check_saved_model(save(tmp_path / "2", module, module.call)))
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


def test_what_is_compiled_needs_a_server_that_compiles(tmp_path):
    @tf.function(jit_compile=True)
    def double(x):
        return x * 2

    module = tf.Module()
    module.call = tf.function(lambda x: {"y": double(x)}, input_signature=[NUMBERS])
    save(tmp_path, module, module.call)
    assert "--xla_cpu_compilation_enabled" in only_problem(check_saved_model(tmp_path))


def test_a_warmup_file_that_fails_is_found(tmp_path):
    good = ("serving_default", {"text": ["a"]})
    path = save_texts(tmp_path, upper)
    for request, said in (
        (("absent", {"text": ["a"]}), "there is no signature absent"),
        (("serving_default", {"words": ["a"]}), "serving_default expects the inputs ['text']"),
    ):
        warmup.write(path, [good, request])
        problem = only_problem(check_saved_model(path))
        assert problem.startswith("warm-up request 2 fails") and said in problem
    content = bytearray((path / warmup.FILE).read_bytes())
    content[20] ^= 1
    (path / warmup.FILE).write_bytes(content)
    assert "warm-up request 1 fails" in only_problem(check_saved_model(path))
    with tf.io.TFRecordWriter(str(path / warmup.FILE)) as writer:
        writer.write(b"")
    assert "the record holds no request" in only_problem(check_saved_model(path))
    with pytest.raises(ValueError, match=r"at most 1000.*1001"):
        warmup.write(path, [good] * 1001)


def test_what_a_session_runs_and_python_does_not_load_is_found(tmp_path):
    """The functions for gradients, which only Python loads, refer to what was dropped."""
    module = Dense()
    module.twice = tf.function(
        lambda x: {"y": tf.nn.silu(tf.nn.silu(x @ module.kernel))}, input_signature=[NUMBERS]
    )
    path = save(tmp_path, module, module.twice)
    saved_model = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
    graph_edits.prune(saved_model.meta_graphs[0].graph_def)
    (path / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    assert "tf.saved_model.load" in only_problem(check_saved_model(path))


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

    assert problems("A", 1.0) == [] == problems("A", 1.1, tolerance=0.2)
    [problem] = problems("B", 1.00001)
    assert "output translation is [b'A'], but in process it is [b'B']" in problem
    [problem] = problems("A", 1.1)
    assert "output score is [1.], but in process it is [1.1]" in problem


def test_what_rounding_may_change_and_what_not():
    """Some searches may find something else; nothing else may differ, and each failure is named."""
    texts, scores = np.array([b"a", b"b"], object), np.array([1.0, 2.0], "float32")
    case = {"signature": "s", "inputs": {}, "outputs": {"text": texts, "score": scores}}

    def problems(outputs, **rounded):
        session = types.SimpleNamespace(run=lambda *asked: outputs)
        return known_answers.compare(session, [{**case, **rounded}], 1e-3)

    other = {"text": texts, "score": np.array([1.0, 3.0], "float32")}
    assert problems(other, rounded=True) == [] and "output score" in problems(other)[0]
    assert "output score" in problems({**other, "score": scores + 1}, rounded=True)[0]
    assert "output text" in problems({**other, "text": texts[::-1]}, rounded=True)[0]
    assert "output score" in problems({"text": texts, "score": scores[:1]}, rounded=True)[0]
    assert problems({"text": texts}) == ["signature s has no output score"]
    failing = types.SimpleNamespace(run=lambda *asked: [][0])
    assert known_answers.compare(failing, [case], 1e-3)[0].startswith("signature s fails: list")


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
    path = save_texts(tmp_path, upper)
    assert check.main([str(path)]) == 0 and "sound" in capsys.readouterr().out


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
