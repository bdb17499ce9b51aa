"""What many tests need: `check_layer`, gradients on either backend, weights by name."""

import contextlib
import resource
import warnings

import keras
import numpy as np
from keras import ops

from keras_tfmr.precision import dtype_policy

POLICIES = {  # dtype policy: how far two ways to compute the same output may be apart
    "float32": 1e-5,
    "mixed_bfloat16": 5e-2,
    "mixed_float16": 5e-3,
}
ON_JAX = keras.backend.backend() == "jax"


def random(*shape, seed=0, scale=1.0):
    """Reproducible float32 normal numbers."""
    return (scale * np.random.default_rng(seed).normal(size=shape)).astype("float32")


def random_ids(*shape, vocab, seed=0):
    """Reproducible token ids, none of them padding."""
    return np.random.default_rng(seed).integers(1, vocab, size=shape).astype("int32")


def to_numpy(tensor):
    """A float32 (or integer, or bool) NumPy array; NumPy itself has no bfloat16."""
    if keras.backend.is_float_dtype(keras.backend.standardize_dtype(tensor.dtype)):
        tensor = ops.cast(tensor, "float32")
    return np.array(ops.convert_to_numpy(tensor))


def flat_numpy(outputs):
    return [to_numpy(output) for output in keras.tree.flatten(outputs)]


@contextlib.contextmanager
def no_warnings():
    """Every warning inside is an error, but for what Keras itself calls deprecated in NumPy."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="keras\\.src")
        yield


@contextlib.contextmanager
def full_disk(room=20_000):
    """Inside, the system refuses to write more bytes into a file, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def gradients(loss, arrays=(), variables=()):
    """Gradients of `loss(*tensors)`, a scalar, by input arrays and by Keras variables.

    Returns: loss, list of gradients by `arrays`, list of gradients by `variables`; all NumPy.
    """
    arrays = [ops.convert_to_tensor(array) for array in arrays]
    differentiate = _gradients_jax if ON_JAX else _gradients_tensorflow
    value, by_array, by_variable = differentiate(loss, arrays, list(variables))
    return to_numpy(value), [to_numpy(g) for g in by_array], [to_numpy(g) for g in by_variable]


def _gradients_tensorflow(loss, arrays, variables):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(arrays)
        value = loss(*arrays)
    sources = arrays + [variable.value for variable in variables]
    found = tape.gradient(value, sources, unconnected_gradients="zero")
    found = [tf.convert_to_tensor(gradient) for gradient in found]  # embeddings give slices
    return value, found[: len(arrays)], found[len(arrays) :]


def _gradients_jax(loss, arrays, variables):
    import jax

    def stateless(arrays, values):
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return loss(*arrays)

    values = [variable.value for variable in variables]
    value, (by_array, by_value) = jax.value_and_grad(stateless, argnums=(0, 1))(arrays, values)
    return value, by_array, by_value


def set_weights_by_path(model, weights):
    """`weights`: {path: array}; each path has to be there, and nothing else."""
    paths = [variable.path for variable in model.weights]
    assert sorted(paths) == sorted(weights), "the weights have other names"
    for variable in model.weights:
        variable.assign(weights[variable.path])


def weights_by_path(model):
    weights = {variable.path: to_numpy(variable) for variable in model.weights}
    assert len(weights) == len(model.weights), "two weights share one name"
    return weights


def functional(layer, arrays, **call):
    """A functional model of `layer` alone, batch and length left open where that is possible."""
    inputs = []
    for i, array in enumerate(arrays):
        vectors = array.ndim == 2 and array.dtype.kind == "f"  # [batch, width]: no length
        shape = array.shape[1:] if vectors else (None, *array.shape[2:])
        inputs.append(keras.Input(shape, dtype=array.dtype, name=f"input_{i}"))
    model = keras.Model(inputs, layer(*inputs, **call), name="only")
    return model


def check_layer(
    make, arrays, fresh, tmp_path, *, policies=POLICIES, quantized=True, trains=True, **call
):
    """Everything a layer owes its user, whatever it computes.

    Args:
        make: `make(**kwargs)` gives a new layer, `functools.partial(Layer, 2, 4)` for instance.
        arrays: NumPy inputs [batch, length, ...] for its call.
        fresh: the fixture: another Python process that loads what was saved.
        tmp_path: where to save.
        policies: {dtype policy: tolerance}.
        trains: whether the call uses all the weights.
        quantized: whether the layer has weights that int8 quantisation changes.
        **call: further call arguments, such as `return_attention_scores=True`.
    """
    for policy, tolerance in policies.items():
        with dtype_policy(policy), no_warnings():
            keras.utils.set_random_seed(1)
            layer = make()
            outputs = flat_numpy(layer(*arrays, **call))
            model = functional(layer, arrays, **call)
            _check_shapes(model, layer, arrays, call)
            path = tmp_path / f"{layer.name}_{policy}.keras"
            model.save(path)
            for loaded, expected in zip(fresh.outputs(path, arrays), outputs, strict=True):
                np.testing.assert_allclose(loaded, expected, atol=tolerance, rtol=tolerance)
            _check_config(model, arrays, outputs, tolerance)
            if trains:
                _check_training(model, arrays, outputs, tolerance)
    _check_dtype_argument(make, arrays, call)
    if quantized:
        _check_quantized(make(), arrays, call)


def _check_shapes(model, layer, arrays, call):
    """What the functional API promises is what comes: rank, every known dimension, dtype."""
    symbolic = keras.tree.flatten(model.output)
    eager = keras.tree.flatten(layer(*arrays, **call))
    for promised, came in zip(symbolic, eager, strict=True):
        assert promised.dtype == keras.backend.standardize_dtype(came.dtype)
        assert len(promised.shape) == len(came.shape)
        for expected, size in zip(promised.shape, came.shape, strict=True):
            assert expected in (None, size), f"symbolic {promised.shape}, eager {came.shape}"
    fixed = [keras.KerasTensor(array.shape, dtype=array.dtype) for array in arrays]
    promised = keras.tree.flatten(layer(*fixed, **call))
    assert [p.shape for p in promised] == [tuple(c.shape) for c in eager]


def _check_config(model, arrays, outputs, tolerance):
    """A model rebuilt from its JSON takes the weights by name and gives the same output."""
    rebuilt = keras.models.model_from_json(model.to_json())
    set_weights_by_path(rebuilt, weights_by_path(model))
    again = flat_numpy(rebuilt(arrays))
    for came, expected in zip(again, outputs, strict=True):
        np.testing.assert_allclose(came, expected, atol=tolerance, rtol=tolerance)


def _check_training(model, arrays, outputs, tolerance):
    """One step lowers the loss: in float32 by XLA, with the same outputs, else in a plain graph.

    XLA takes seconds for a layer, so it sees float32 alone; the models' tests show it the rest.
    """
    targets = [random(*output.shape, seed=9) for output in outputs]

    def loss():
        came = flat_numpy(model(arrays))
        return sum(np.square(c - t).mean() for c, t in zip(came, targets, strict=True))

    exact = tolerance < 1e-3
    model.compile(keras.optimizers.SGD(0.02), loss=["mse"] * len(targets), jit_compile=exact)
    if exact:
        predicted = keras.tree.flatten(model.predict_on_batch(arrays))
        for came, expected in zip(predicted, outputs, strict=True):
            np.testing.assert_allclose(came, expected, atol=tolerance, rtol=tolerance)
    before = loss()
    model.train_on_batch(arrays, targets)
    assert loss() < before, f"jit_compile={exact}: {before} -> {loss()}"


def _check_dtype_argument(make, arrays, call):
    """`dtype=` reaches every part of the layer, as the global policy does."""
    layer = make(dtype="mixed_bfloat16")
    layer(*arrays, **call)
    for part in layer._flatten_layers():
        assert part.dtype_policy.name == "mixed_bfloat16", f"{part.name} ignores dtype="


def _check_quantized(layer, arrays, call):
    model = functional(layer, arrays, **call)
    before = flat_numpy(model(arrays))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras names each layer that has nothing to quantise
        model.quantize("int8")
    assert any("int8" in str(v.dtype) for v in model.variables), "nothing was quantised"
    for exact, rough in zip(before, flat_numpy(model(arrays)), strict=True):
        error = np.linalg.norm(rough - exact) / np.linalg.norm(exact)
        assert error < 0.1, f"int8 is off by {error:.1%}"


def projection(dense, heads):
    """(kernel, bias) of a `Dense` that projects to heads: [width, heads, dim], [heads, dim]."""
    kernel = to_numpy(dense.kernel)
    kernel = kernel.reshape(kernel.shape[0], heads, -1)
    bias = np.zeros(kernel.shape[1:]) if dense.bias is None else to_numpy(dense.bias)
    return kernel, bias.reshape(kernel.shape[1:])


def attention_weights(layer):
    """The weights of a `MultiHeadAttention` as `formulas.attention` takes them."""
    heads, width = layer.num_heads, layer.output_dense.kernel.shape[-1]
    kernel = to_numpy(layer.output_dense.kernel).reshape(heads, -1, width)
    bias = np.zeros(width) if layer.output_dense.bias is None else to_numpy(layer.output_dense.bias)
    return {
        "query": projection(layer.query_dense, heads),
        "key": projection(layer.key_dense, heads),
        "value": projection(layer.value_dense, heads),
        "output": (kernel, bias),
    }


def norm_weights(sublayer):
    norm = sublayer.residual.norm
    return to_numpy(norm.gamma), to_numpy(norm.beta), norm.epsilon


def layer_weights(layer):
    """The weights of an encoder or decoder layer as `formulas` takes them."""
    feed_forward = layer.feed_forward
    decodes = hasattr(layer, "cross_attention")
    weights = {
        "attention": attention_weights(layer.self_attention.attention),
        "attention_norm": norm_weights(layer.self_attention),
        "feed_forward": {
            "inner": [to_numpy(v) for v in feed_forward.hidden_dense.weights],
            "outer": [to_numpy(v) for v in feed_forward.output_dense.weights],
        },
        "feed_forward_norm": norm_weights(feed_forward),
    }
    if decodes:
        weights["cross"] = attention_weights(layer.cross_attention.attention)
        weights["cross_norm"] = norm_weights(layer.cross_attention)
    return weights


def randomize(layer, seed=5):
    """Gives every weight a random value: biases and norms that start at 0 and 1 hide mistakes."""
    rng = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        start = 1.0 if variable.name == "gamma" else 0.0
        variable.assign(start + 0.3 * rng.normal(size=variable.shape).astype("float32"))
