"""An edited graph answers as before, and a server has less to do before it answers."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("exports need TensorFlow", allow_module_level=True)

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, saved_model_pb2

from keras_tfmr.export import graph_edits
from keras_tfmr.export.saved_session import SavedSession


class Powers(tf.Module):
    """Signatures with a loop, a condition, an assertion, and constants and ops for nothing."""

    def __init__(self):
        super().__init__()
        self.base = tf.Variable([2.0, 3.0])
        inputs = [tf.TensorSpec([None], tf.float32, name="x")]
        self.jitted = tf.function(self.power, inputs, jit_compile=True)
        self.plain = tf.function(lambda x: {"y": self.power(x)}, inputs)
        self.compiled = tf.function(lambda x: {"y": self.either(x)}, inputs)

    def power(self, x):
        tf.reverse(x, [0])  # for nothing
        y = x
        for _ in tf.range(3):
            y = y * tf.constant(1.0) * self.base[0] + tf.constant(1.0)
        return y * self.base[1]

    def either(self, x):
        tf.debugging.assert_all_finite(x, "x must be finite")
        return tf.cond(tf.size(x) < 3, lambda: self.jitted(x), lambda: self.power(x))


def expected(x):
    for _ in range(3):
        x = x * 2 + 1
    return x * 3


def edited(path, *edits):
    module = Powers()
    signatures = {"plain": module.plain, "compiled": module.compiled}
    tf.saved_model.save(module, str(path), signatures=signatures)
    file = path / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    graph = saved_model.meta_graphs[0].graph_def
    before = count(graph)
    for edit in edits:
        edit(graph)
    file.write_bytes(saved_model.SerializeToString())
    return before, count(graph)


def count(graph):
    return sum(len(function.node_def) for function in graph.library.function)


@pytest.mark.parametrize("edits", [["shrink"], ["leave_to_xla"], ["leave_to_xla", "shrink"]])
def test_answers_and_assertions_stay(tmp_path, edits):
    before, after = edited(tmp_path, *(getattr(graph_edits, name) for name in edits))
    assert after < 0.8 * before if "shrink" in edits else after == before
    with SavedSession(tmp_path) as session:
        for signature in ("plain", "compiled"):
            for size in (1, 4):
                x = np.arange(size, dtype=np.float32)
                np.testing.assert_array_equal(session.run(signature, {"x": x})["y"], expected(x))
        with pytest.raises(tf.errors.InvalidArgumentError, match="must be finite"):
            session.run("compiled", {"x": np.float32([np.inf])})
    loaded = tf.saved_model.load(str(tmp_path))
    answer = loaded.signatures["compiled"](x=tf.constant([0.0, 1.0]))
    np.testing.assert_array_equal(answer["y"], expected(np.float32([0, 1])))


def test_a_graph_is_shrunk_once(tmp_path):
    _, once = edited(tmp_path / "1", graph_edits.shrink)
    _, twice = edited(tmp_path / "2", graph_edits.shrink, graph_edits.shrink)
    assert once == twice


def test_only_what_xla_compiles_is_left_to_it(tmp_path):
    """Grappler inlines what it optimizes, up to compiled functions, into the graph that runs."""
    edited(tmp_path, graph_edits.leave_to_xla)
    with SavedSession(tmp_path) as session:
        calls = {name: called(session, name) for name in session.signatures}
    assert calls["plain"] == []
    assert [name for name in calls["compiled"] if "signature_wrapper" in name], "the whole of it"


def called(session, signature):
    """The functions that the executed graph of a signature calls."""
    definition, metadata = session.signatures[signature], config_pb2.RunMetadata()
    session.session.run(
        definition.outputs["y"].name,
        {definition.inputs["x"].name: [1.0]},
        config_pb2.RunOptions(output_partition_graphs=True),
        metadata,
    )
    nodes = [node for graph in metadata.partition_graphs for node in graph.node]
    return [node.attr["f"].func.name for node in nodes if "PartitionedCall" in node.op]
