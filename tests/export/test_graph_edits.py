"""An edited graph answers as before, and a server has less to do before it answers."""

import numpy as np
import pytest
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
        self.loop = tf.function(lambda x: {"y": self.power(x)}, inputs)
        self.condition = tf.function(lambda x: {"y": self.either(x)}, inputs)

    def power(self, x):
        tf.reverse(x, [0])  # for nothing
        y = x
        for _ in tf.range(3):
            y = y * tf.constant(1.0) * self.base[0] + tf.constant(1.0)
        return y * self.base[1]

    def either(self, x):
        tf.debugging.assert_all_finite(x, "x must be finite")
        return tf.cond(tf.size(x) < 3, lambda: self.power(x), lambda: 2.0 * self.power(x) / 2.0)


def expected(x):
    for _ in range(3):
        x = x * 2 + 1
    return x * 3


def edited(path, *edits):
    module = Powers()
    signatures = {"loop": module.loop, "condition": module.condition}
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


def test_answers_and_assertions_stay(tmp_path):
    """And loops stay whole: a session lowers one to `Merge` and others, unless told not to."""
    found = {}
    for names in (["prune"], ["keep_loops"], ["keep_loops", "prune"]):
        path = tmp_path / "-".join(names)
        before, after = edited(path, *(getattr(graph_edits, name) for name in names))
        assert after < 0.8 * before if "prune" in names else after == before
        with SavedSession(path) as session:
            for signature in ("loop", "condition"):
                for size in (1, 4):
                    x = np.arange(size, dtype=np.float32)
                    y = session.run(signature, {"x": x})["y"]
                    np.testing.assert_array_equal(y, expected(x))
            with pytest.raises(tf.errors.InvalidArgumentError, match="must be finite"):
                session.run("condition", {"x": np.float32([np.inf])})
            found[path.name] = executed_ops(session)
        loaded = tf.saved_model.load(str(path))
        answer = loaded.signatures["condition"](x=tf.constant([0.0, 1.0]))
        np.testing.assert_array_equal(answer["y"], expected(np.float32([0, 1])))
    assert "Merge" in found["prune"] and "Merge" not in found["keep_loops-prune"]
    assert {"While", "StatelessWhile"} & found["keep_loops-prune"]


def test_a_graph_is_pruned_once(tmp_path):
    _, once = edited(tmp_path / "1", graph_edits.prune)
    _, twice = edited(tmp_path / "2", graph_edits.prune, graph_edits.prune)
    assert once == twice


def executed_ops(session):
    definition, metadata = session.signatures["loop"], config_pb2.RunMetadata()
    session.session.run(
        definition.outputs["y"].name,
        {definition.inputs["x"].name: [1.0]},
        config_pb2.RunOptions(output_partition_graphs=True),
        metadata,
    )
    return {node.op for graph in metadata.partition_graphs for node in graph.node}
