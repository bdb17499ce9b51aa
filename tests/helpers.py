"""What many tests need: gradients on either backend, traced operations, cached steps."""

import contextlib
import resource
import warnings

import keras
import numpy as np
from keras import ops

POLICIES = {  # dtype policy: how far two ways to compute the same output may be apart
    "float32": 1e-5,
    "mixed_bfloat16": 5e-2,
    "mixed_float16": 5e-3,
}
OPTIONS = {  # kinds of Transformer, by fields of their config; sizes of vocabularies are beside it
    "paper": {},
    "other sizes": dict(
        encoder_layers=2, decoder_layers=2, d_model=24, num_heads=4, dff=40, key_dim=6,
        dropout_rate=0.5, attention_dropout_rate=0.5,
    ),
    "two vocabularies, tied with a bias": dict(
        joint_vocab=False, logits_bias=True, embedding_scale=False
    ),
    "logits of their own, pre-norm": dict(
        tied_logits=False, norm_first=True, norm_epsilon=0.01, activation="gelu_tanh",
        embedding_norm=True,
    ),
    "grouped": dict(num_kv_heads=1, positions="learned", max_length=200),
    "modern": dict(
        norm_first=True, norm="rms", gated=True, activation="silu", use_bias=False, num_kv_heads=1,
        positions="rotary", max_wavelength=100.0, qk_norm=True,
    ),
    "relative": dict(positions="relative", use_bias=False),
    "alibi": dict(positions="alibi"),
}  # fmt: skip
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


def learning():
    """Tests run without gradients on torch, whose tensors NumPy takes only then; not inside."""
    if keras.backend.backend() != "torch":
        return contextlib.nullcontext()
    import torch

    return torch.enable_grad()


@contextlib.contextmanager
def full_disk(room=20_000):
    """Inside, the system refuses to write more bytes into a file, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def compiled(function, xla=True):
    """The function as it runs in a service: traced once, with XLA or without."""
    if ON_JAX:
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(function, jit_compile=xla)


def gradients(loss, arrays=(), variables=()):
    """Gradients of `loss(*tensors)`, a scalar, by input arrays and by Keras variables.

    Returns: loss, list of gradients by `arrays`, list of gradients by `variables`; all NumPy.
    """
    arrays = [ops.convert_to_tensor(array) for array in arrays]
    differentiate = globals()[f"_gradients_{keras.backend.backend()}"]
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


def _gradients_torch(loss, arrays, variables):
    import torch

    arrays = [array.requires_grad_() for array in arrays]
    with learning():
        value, sources = loss(*arrays), arrays + [variable.value for variable in variables]
    found = torch.autograd.grad(value, sources, allow_unused=True, materialize_grads=True)
    return value.detach(), found[: len(arrays)], found[len(arrays) :]


def second_gradient(function, array):
    """The gradient by an array of Σ g², where g is that of `function(array)`, a scalar; NumPy."""
    x = ops.convert_to_tensor(array)
    if ON_JAX:
        import jax

        found = jax.grad(lambda x: ops.sum(jax.grad(function)(x) ** 2))(x)
    elif keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                value = function(x)
            penalty = tf.reduce_sum(inner.gradient(value, x) ** 2)
        found = outer.gradient(penalty, x)
    else:
        import torch

        with learning():
            x.requires_grad_()
            (first,) = torch.autograd.grad(function(x), x, create_graph=True)
            (found,) = torch.autograd.grad(ops.sum(first**2), x)
    return to_numpy(found)


def operations(function, *arrays):
    """What TensorFlow traces of `function(*arrays)`: the operations of its graph."""
    import tensorflow as tf

    specs = [tf.TensorSpec(array.shape, array.dtype) for array in arrays]
    return tf.function(function).get_concrete_function(*specs).graph.get_operations()


def randomize(layer, seed=5):
    """Gives every weight a random value: biases and norms that start at 0 and 1 hide mistakes."""
    rng = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        start = 1.0 if variable.name == "gamma" else 0.0
        variable.assign(start + 0.3 * rng.normal(size=variable.shape).astype("float32"))
