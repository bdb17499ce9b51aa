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
    "beam": (beam_search, 3, dict(num_beams=3, num_return_sequences=2, length_penalty=0.6)),
    "beam, large vocabulary": (beam_search, 4, dict(num_beams=4, banned_ids=(0, 2))),
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


def decoder_of(name):
    decode, beams, options = DECODERS[name]
    model = HashModel(2400 if "large" in name else 8, batch=6, seed=2, sharpness=2.0)

    def run(bos_ids, prefix, max_lengths):
        step, cache = model.start(beams)
        return decode(
            step, cache, bos_ids=bos_ids, eos_id=END, max_length=10, min_length=2, prefix=prefix,
            max_lengths=max_lengths, **options,
        )  # fmt: skip

    return run


INPUTS = (
    np.zeros(6, "int32"),
    np.array([[3, 4], [5, 0], [0, 0], [0, 0], [0, 0], [6, 0]], "int32"),
    np.array([10, 10, 10, 3, 1, 0], "int32"),
)


def assert_same(found, expected):
    for example in range(6):
        one, other = hypotheses(found, example), hypotheses(expected, example)
        assert [h[0] for h in one] == [h[0] for h in other]
        np.testing.assert_allclose([h[1:] for h in one], [h[1:] for h in other], atol=1e-5)


@pytest.mark.parametrize("name", DECODERS)
def test_eager_graph_and_compiled_agree(name):
    run = decoder_of(name)
    functions = [jitted(run)]
    if keras.backend.backend() == "tensorflow":
        # TensorFlow draws other random numbers under XLA.
        functions = [jitted(run, jit=False)] + functions * (name != "sample")
    for function in functions:
        assert_same(function(*map(ops.convert_to_tensor, INPUTS)), run(*INPUTS))


@tensorflow_only
@pytest.mark.parametrize("beams", [1, 3])
def test_one_trace_for_all_batch_sizes(beams):
    import tensorflow as tf

    table = np.random.default_rng(0).normal(size=(50, 50)).astype("float32") * 2
    table -= np.log(np.exp(table).sum(-1, keepdims=True))

    def run(bos_ids, prefix, max_lengths):
        cache = ops.repeat(bos_ids, beams, axis=0)[:, None]
        return beam_search(
            lambda tokens, cache: (ops.take(table, tokens, axis=0), cache + tokens[:, None]), cache,
            bos_ids=bos_ids, eos_id=END, num_beams=beams, max_length=9, prefix=prefix,
            max_lengths=max_lengths,
        )  # fmt: skip

    spec = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None], tf.int32)]  # fmt: skip
    function = tf.function(run, input_signature=spec)
    for batch in range(0, 20, 3):
        bos_ids = np.arange(batch, dtype="int32") % 7
        prefix = np.full((batch, batch % 4), 5, "int32")
        limits = np.arange(batch, dtype="int32")
        found, eager = function(bos_ids, prefix, limits), run(bos_ids, prefix, limits)
        assert np.array_equal(found.ids, eager.ids)
        np.testing.assert_allclose(found.scores, eager.scores, atol=1e-5)
    assert function.experimental_get_tracing_count() == 1


@tensorflow_only
def test_greedy_carries_no_beam_machinery():
    import tensorflow as tf

    table = np.zeros((50, 50), "float32")
    found = tf.function(
        lambda bos_ids: greedy(
            lambda tokens, cache: (ops.take(table, tokens, axis=0), cache), (), bos_ids=bos_ids,
            eos_id=END, max_length=9,
        )
    ).get_concrete_function(tf.TensorSpec([None], tf.int32))  # fmt: skip
    library = found.graph.as_graph_def().library.function
    (body,) = (f for f in library if "while_body" in f.signature.name)
    kinds = [node.op for node in body.node_def if node.op not in ("Const", "Identity")]
    assert "TopKV2" not in kinds and len(kinds) < 60
