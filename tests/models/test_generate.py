"""`generate`: the same answers compiled and not, alone and in a batch, in one's own graph too."""

import functools
import itertools
import warnings

import keras
import numpy as np
import pytest
from decoding_toys import assert_same
from helpers import compiled, randomize, to_numpy
from keras import ops
from own_models import COMPOSED, SIZES, source_of

from keras_tfmr.decoding import Sampling
from keras_tfmr.layers import CausalDecoder, LMHead, PositionalEmbedding
from keras_tfmr.models import LanguageModel

VOCAB, START, END = 20, 2, 3
PROMPTS = np.array([[2, 9, 4, 7], [2, 7, 0, 0], [2, 5, 5, 0], [2, 0, 0, 0], [2, 8, 8, 8]], "int32")
COMPILES = pytest.mark.backends("tensorflow", "jax")
TENSORFLOW = pytest.mark.backends("tensorflow")
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"


def language_model(layer=None, vocab=VOCAB):
    """Of one layer, and perhaps another one behind it."""
    token_ids = keras.Input((None,), dtype="int32", name="token_ids")
    x = CausalDecoder(**SIZES)(PositionalEmbedding(vocab, 16, name="embedding")(token_ids))
    x = x if layer is None else layer(x)
    model = LanguageModel(token_ids, LMHead(vocab)(x))
    randomize(model)
    return model


@functools.cache
def shared_language_model():
    return language_model()


@functools.cache
def translation_model(name="boxes"):
    return COMPOSED[name]()


def draws(rows):
    """Numbers of their own for each row."""
    noise = np.random.default_rng(1).random((5, 6), "float32")
    return Sampling(noise=noise[:rows], temperature=0.9, top_k=15)


def programs(model):
    """The number of programs that were compiled for a model."""
    compiled = model.programs.compiled.values()
    if ON_TENSORFLOW:
        return sum(program.experimental_get_tracing_count() for program in compiled)
    return sum(program._cache_size() for program in compiled)


WAYS = {
    "greedily": lambda rows: {},
    "beams": lambda rows: dict(num_beams=3, num_return_sequences=2, length_penalty=1.0),
    "sampling": lambda rows: dict(sampling=draws(rows)),
}


@pytest.mark.parametrize(
    "way", ["greedily", *(pytest.param(way, marks=pytest.mark.ci) for way in ("beams", "sampling"))]
)
def test_a_prompt_is_completed_the_same_compiled_or_not_and_whatever_its_neighbours(way):
    """Batches of 1, 3, 4 and 5; each answer is of the prompt alone, as the model itself scores."""
    model = language_model()
    options = {"eos_id": (END, 11), "max_length": 6}
    alone = [
        model.generate(
            PROMPTS[row : row + 1], **options, **dict(WAYS[way](5), **of_row(way, row)),
            run_eagerly=True,
        )
        for row in range(5)
    ]  # fmt: skip
    for rows in (1, 3, 4, 5):
        found = model.generate(PROMPTS[:rows], **options, **WAYS[way](rows))
        assert found.ids.shape[2] == 10
        for row in range(rows):
            ids = to_numpy(alone[row].ids)[0, :, :10]
            assert to_numpy(found.ids)[row, :, : ids.shape[1]].tolist() == ids.tolist()
            for name in ("lengths", "log_probs", "scores"):
                got, expected = (to_numpy(getattr(x, name)) for x in (found, alone[row]))
                np.testing.assert_allclose(got[row], expected[0], atol=1e-4)
    if keras.backend.backend() != "torch":
        assert programs(model) == 3  # of 1, 4 and 8 rows
    ids = to_numpy(found.ids)
    likely = to_numpy(model.log_prob(ids.reshape(-1, 10))).reshape(ids.shape[:2])
    prompts = to_numpy(model.log_prob(np.pad(PROMPTS, [[0, 0], [0, 1]])))[:, None]
    np.testing.assert_allclose(to_numpy(found.log_probs), likely - prompts, atol=1e-4)


def of_row(way, row):
    """The draws of one example."""
    if way != "sampling":
        return {}
    everyone = draws(5)
    return {"sampling": Sampling(noise=everyone.noise[row : row + 1], temperature=0.9, top_k=15)}


@pytest.mark.ci
@COMPILES
def test_answers_follow_what_changes_the_model():
    """Weights, then LoRA, then int8: each time what the model says at once, drawn from a seed."""
    model = language_model(vocab=40)

    def train():
        model.set_weights([0.8 * w + 0.1 for w in model.get_weights()])

    def adapt():
        model.enable_lora(2)
        randomize(model)

    seen = []
    for change in (lambda: None, train, adapt, lambda: model.quantize("int8")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Keras's, of layers that it does not quantise
            change()
        options = {"eos_id": END, "max_length": 4, "sampling": Sampling(seed=3)}
        results = [
            model.generate(PROMPTS[:2], **options, run_eagerly=eagerly) for eagerly in (False, True)
        ]
        for name in ("ids", "log_probs"):
            found, expected = (to_numpy(getattr(each, name)) for each in results)
            np.testing.assert_allclose(found, expected, atol=1e-4)
        seen.append(to_numpy(results[0].log_probs))
    assert all(np.abs(a - b).max() > 1e-3 for a, b in itertools.pairwise(seen))


@pytest.mark.ci
@COMPILES
@pytest.mark.parametrize("way", ["beams", "sampling"])
def test_it_runs_in_a_graph_of_ones_own(way):
    """On TensorFlow of sizes that are not known, and under XLA; on JAX under `jax.jit`."""
    model, translator = shared_language_model(), translation_model()
    fixed, prefix = {"fixed_shapes": True}, np.array([[4, 5], [6, 0], [0, 0]], "int32")
    behind = dict(prefix=prefix, bos_id=np.array([2, 2, 4]), eos_id=(END, 7), min_length=3)

    def complete(prompts, **more):
        return model.generate(prompts, eos_id=END, max_length=6, **WAYS[way](5), **more)

    def translate(language, ids, **more):
        source = {"language": language, "source_ids": ids}
        more |= WAYS[way](3)
        return translator.generate(source, max_length=6, **behind, **more)

    source = source_of(translator)
    for function, inputs in (
        (complete, (PROMPTS,)),
        (translate, (source["language"], source["source_ids"])),
    ):
        inputs = [ops.convert_to_tensor(x) for x in inputs]
        graphs = [compiled(functools.partial(function, **fixed))]
        if ON_TENSORFLOW:
            import tensorflow as tf

            sizes = [tf.TensorSpec([None, None], tf.int32) for _ in inputs]
            graphs.append(tf.function(function, input_signature=sizes, autograph=False))
        for graph in graphs:
            found, expected = graph(*inputs), function(*inputs, run_eagerly=True)
            assert_same(found, expected, range(len(inputs[0])))


@TENSORFLOW
def test_a_graph_of_ones_own_is_compiled_by_its_owner():
    import tensorflow as tf

    model = shared_language_model()
    call = functools.partial(model.generate, PROMPTS, eos_id=END, max_length=4, jit_compile=True)
    with pytest.raises(ValueError, match="give jit_compile=True to that"):
        tf.function(call, autograph=False)()


@TENSORFLOW
def test_a_graph_of_fixed_shapes_is_no_program_of_xla():
    model = language_model()
    for number, choice in enumerate((False, True), 1):
        model.generate(PROMPTS, eos_id=END, max_length=4, fixed_shapes=True, jit_compile=choice)
        assert len(model.programs.compiled) == number


class Generating(keras.Model):
    """A model whose call is the answer of another."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def call(self, prompts):
        return self.inner.generate(prompts, eos_id=END, max_length=4).log_probs


@pytest.mark.ci
@COMPILES
def test_it_obeys_the_weights_of_a_stateless_call():
    model = shared_language_model()
    outer = Generating(model)
    before = to_numpy(outer(ops.convert_to_tensor(PROMPTS)))
    weights = [0.5 * variable.value for variable in outer.trainable_variables]
    others = [variable.value for variable in outer.non_trainable_variables]
    found, _ = outer.stateless_call(weights, others, ops.convert_to_tensor(PROMPTS))
    kept = model.get_weights()
    for variable, value in zip(outer.trainable_variables, weights, strict=True):
        variable.assign(value)
    expected = to_numpy(outer(ops.convert_to_tensor(PROMPTS)))
    model.set_weights(kept)
    np.testing.assert_allclose(to_numpy(found), expected, atol=1e-4)
    assert np.abs(to_numpy(found) - before).max() > 1e-2


class Python(keras.layers.Layer):
    """Computes by Python, which XLA does not compile."""

    position_wise = True

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, x):
        import tensorflow as tf

        y = tf.numpy_function(lambda x: 2 * x, [x], tf.float32)
        return tf.ensure_shape(y, x.shape)

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, x.dtype)


class Refusing(keras.layers.Layer):
    """Says that it does not compile."""

    position_wise = True

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking, self.supports_jit = True, False

    def call(self, x):
        return 2 * x


@pytest.mark.parametrize(
    "kind, reason",
    [
        pytest.param(Python, "compil", marks=TENSORFLOW),
        pytest.param(Refusing, "supports_jit=False", marks=COMPILES),
    ],
)
def test_a_model_that_does_not_compile_decodes_without_and_says_so(kind, reason):
    model = language_model(kind(name="python", dtype="float32"))
    with pytest.warns(UserWarning, match="decodes without XLA") as said:
        found = model.generate(PROMPTS, eos_id=END, max_length=4)
    assert reason in str(said[0].message)
    for rows in (5, 3):  # it says so once, and TensorFlow needs no more than three graphs
        found = model.generate(PROMPTS[:rows], eos_id=END, max_length=4)
        expected = model.generate(PROMPTS[:rows], eos_id=END, max_length=4, run_eagerly=True)
        np.testing.assert_array_equal(to_numpy(found.ids), to_numpy(expected.ids))
    assert not ON_TENSORFLOW or programs(model) <= 3


@pytest.mark.parametrize(
    "options, said",
    [
        ({"bos_id": [2, 2]}, "`bos_id` must have shape"),
        ({"bos_id": VOCAB}, "bos_id"),
        ({"bos_id": [2, 0, 2]}, "masks the ID 0 as padding"),
        ({"eos_id": VOCAB}, f"eos_id must be below the vocabulary size {VOCAB}"),
        ({"jit_compile": "yes"}, "'auto', True or False. Received: jit_compile='yes'"),
        ({"jit_compile": True, "run_eagerly": True}, "PyTorch|run_eagerly=True"),
    ],
)
def test_what_cannot_be_is_said(options, said):
    model = translation_model("own layers")
    with pytest.raises(ValueError, match=said):
        model.generate(source_of(model), **{"bos_id": 2, "eos_id": END, "max_length": 4, **options})


def test_a_model_that_gives_no_numbers_is_an_error_that_names_the_examples():
    model = language_model()
    model.set_weights([np.nan * w for w in model.get_weights()])
    for options in ({}, {"num_beams": 2, "run_eagerly": True}):
        with pytest.raises(ValueError, match=r"Received: NaN in the examples \[0, 1"):
            model.generate(PROMPTS, eos_id=END, max_length=4, **options)
