"""The decoders give the same answer eagerly, in a graph and compiled, on TensorFlow and JAX."""

import keras
import numpy as np
import pytest
from decoding_toys import HashModel, hypotheses
from keras import ops

from keras_tfmr.decoding import beam_search, greedy, sample

END = 1
DECODERS = {
    "greedy": (greedy, 1, dict(length_penalty=0.6)),
    "beam": (beam_search, 3, dict(beams=3, n=2, length_penalty=0.6)),
    "beam, large vocabulary": (beam_search, 4, dict(beams=4, n=4, banned_ids=(0, 2))),
    "sample": (sample, 1, dict(seed=3, top_p=0.9)),
}
tensorflow_only = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="tf.function is TensorFlow's"
)


def jitted(function, jit=True):
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, jit_compile=jit)


def decoder_and_model(name):
    decode, beams, options = DECODERS[name]
    model = HashModel(2400 if "large" in name else 8, batch=6, seed=2, sharpness=2.0)

    def run(start_ids, prefix, limits):
        step, state = model.start(beams)
        return decode(
            step, state, start_ids=start_ids, end_id=END, max_length=10, min_length=2,
            prefix=prefix, limits=limits, **options,
        )  # fmt: skip

    return run


@pytest.mark.parametrize("name", DECODERS)
def test_eager_graph_and_compiled_agree(name):
    run = decoder_and_model(name)
    inputs = (
        np.zeros(6, "int32"),
        np.array([[3, 4], [5, 0], [0, 0], [0, 0], [0, 0], [6, 0]], "int32"),
        np.array([10, 10, 10, 3, 1, 0], "int32"),
    )
    eager = run(*inputs)
    functions = [jitted(run)]
    if keras.backend.backend() == "tensorflow":
        # TensorFlow draws other random numbers under XLA.
        functions = [jitted(run, jit=False)] + functions * (name != "sample")
    for function in functions:
        result = function(*(ops.convert_to_tensor(value) for value in inputs))
        for example in range(6):
            expected, found = hypotheses(eager, example), hypotheses(result, example)
            assert [h[0] for h in found] == [h[0] for h in expected]
            np.testing.assert_allclose([h[1:] for h in found], [h[1:] for h in expected], atol=1e-5)


class BigramModel:
    """Depends on the last token only; its shapes follow the batch it is started with."""

    def __init__(self, vocab):
        rng = np.random.default_rng(0)
        logits = rng.normal(size=(vocab, vocab)) * 2
        self.table = (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype("float32")

    def start(self, start_ids, beams):
        rows = ops.repeat(start_ids, beams, axis=0)

        def step(tokens, state):
            return ops.take(self.table, tokens, axis=0), state + tokens[:, None]

        return step, ops.cast(rows, "int32")[:, None]


@tensorflow_only
@pytest.mark.parametrize("beams", [1, 3])
def test_one_trace_for_all_batch_sizes(beams):
    import tensorflow as tf

    model = BigramModel(50)

    def run(start_ids, prefix, limits):
        step, state = model.start(start_ids, beams)
        return beam_search(
            step, state, start_ids=start_ids, end_id=END, beams=beams, max_length=9,
            prefix=prefix, limits=limits,
        )  # fmt: skip

    spec = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None], tf.int32)]  # fmt: skip
    function = tf.function(run, input_signature=spec)
    for batch in range(20):
        start_ids = np.arange(batch, dtype="int32") % 7
        prefix = np.full((batch, batch % 4), 5, "int32")
        limits = np.arange(batch, dtype="int32")
        found, eager = function(start_ids, prefix, limits), run(start_ids, prefix, limits)
        assert np.array_equal(found.ids, eager.ids)
        np.testing.assert_allclose(found.scores, eager.scores, atol=1e-5)
    assert function.experimental_get_tracing_count() == 1


def operations(function, *inputs):
    """Names of the operations inside the loop of a traced function."""
    graph = function.get_concrete_function(*inputs).graph
    body = next(op for op in graph.get_operations() if op.type in ("While", "StatelessWhile"))
    inner = graph._get_function(body.get_attr("body").name)
    definition = inner.cached_definition if hasattr(inner, "cached_definition") else inner
    return [node.op for node in definition.node_def]


@tensorflow_only
def test_greedy_carries_no_beam_machinery():
    import tensorflow as tf

    model = BigramModel(50)

    def run(start_ids):
        step, state = model.start(start_ids, 1)
        return greedy(step, state, start_ids=start_ids, end_id=END, max_length=9)

    ops_in_loop = operations(tf.function(run), tf.TensorSpec([None], tf.int32))
    assert not {"TopKV2", "ConcatV2"} & set(ops_in_loop)
    assert sum(op not in ("Const", "Identity", "Placeholder") for op in ops_in_loop) < 40
