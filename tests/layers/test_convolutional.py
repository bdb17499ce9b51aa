"""The convolutional encoder against its equations, position by position in NumPy."""

import functools

import numpy as np
import pytest
from helpers import POLICIES, check_layer, gradients, random, to_numpy
from keras import ops
from recurrent_formulas import align_and_write, arrays

from keras_tfmr.recurrent import (
    ConvolutionalConfig,
    ConvolutionalDecoder,
    ConvolutionalEncoder,
    ConvolutionalModel,
    ConvolutionStack,
)

VOCAB, UNITS = 11, 5
CONFIG = ConvolutionalConfig(
    source_vocab=VOCAB,
    target_vocab=VOCAB,
    embedding_dim=6,
    units=UNITS,
    alignment_units=7,
    maxout_units=4,
    alignment_layers=3,
    context_layers=2,
)
SOURCE = np.array([[4, 9, 3, 7, 2], [5, 3, 0, 0, 0]], "int32")
TARGET = np.array([[2, 5, 9, 1], [2, 8, 3, 0]], "int32")


@pytest.fixture(scope="module")
def model():
    model = ConvolutionalModel(CONFIG)
    for i, variable in enumerate(model.trainable_variables):
        variable.assign(random(*variable.shape, seed=i, scale=0.5))
    return model


def convolve(stack, x):
    """z ← z + tanh(Σ_k z_{j+k} W_k + b), zero past the ends."""
    kernel, bias = arrays(stack.input_dense)
    z, reach = x @ kernel + bias, stack.kernel_size // 2
    for convolution in stack.convolutions:
        (kernel, bias), length = arrays(convolution), len(z)
        sums = np.tile(bias, (length, 1))
        for j in range(length):
            for k in range(-reach, reach + 1):
                if 0 <= j + k < length:
                    sums[j] += z[j + k] @ kernel[k + reach]
        z = z + np.tanh(sums)
    return z


def test_every_equation(model):
    (embedding,), (positions,) = arrays(model.source_embedding), arrays(model.encoder.positions)
    w_s, b_s = arrays(model.decoder.start_dense)
    logits, ((scores,), *_) = model.explain(SOURCE, TARGET)
    for row in range(2):
        source, target = SOURCE[row][SOURCE[row] > 0], TARGET[row][TARGET[row] > 0]
        x = embedding[source] + positions[: len(source)]
        a = convolve(model.encoder.alignment_stack, x)
        c = convolve(model.encoder.context_stack, x)
        s = np.tanh(c.mean(axis=0) @ w_s + b_s)
        expected, alphas = align_and_write(model, embedding[target], a, c, s)
        n, m = len(target), len(source)
        np.testing.assert_allclose(to_numpy(logits)[row, :n], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(to_numpy(scores)[row, 0, :n, :m], alphas, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kernel_size", [3, 5])
def test_receptive_field(kernel_size):
    """The gradient of one position reaches so many positions around it, and no further."""
    stack = ConvolutionStack(4, num_layers=2, kernel_size=kernel_size)
    middle, length = 10, 21
    _, (by_x,), _ = gradients(lambda x: ops.sum(stack(x)[:, middle] ** 2), [random(1, length, 3)])
    reached = np.flatnonzero(np.abs(by_x[0]).sum(axis=-1))
    assert stack.receptive_field == len(reached) == 2 * (kernel_size - 1) + 1
    np.testing.assert_array_equal(reached - middle, np.arange(len(reached)) - len(reached) // 2)


LAYERS = {
    "stack": (functools.partial(ConvolutionStack, 8, 2), [random(2, 5, 6)], ("float32",)),
    "encoder": (
        functools.partial(ConvolutionalEncoder, 8, 2, 1, max_length=9),
        [random(2, 5, 6)],
        ("float32", "mixed_float16"),
    ),
    "decoder": (
        functools.partial(ConvolutionalDecoder, 8, 6),
        [random(2, 3, 6), random(2, 4, 10, seed=1)],
        ("float32", "mixed_bfloat16"),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, fresh, tmp_path):
    make, inputs, policies = LAYERS[name]
    policies = {policy: POLICIES[policy] for policy in policies}
    check_layer(make, inputs, fresh, tmp_path, policies=policies)


def test_config():
    assert ConvolutionalConfig.from_json(CONFIG.to_json()) == CONFIG
    with pytest.raises(ValueError, match="Unknown preset 'paper'"):
        ConvolutionalConfig.preset("paper")
    with pytest.raises(ValueError, match=r"`kernel_size` must be odd.*kernel_size=4"):
        ConvolutionalConfig(kernel_size=4)
    with pytest.raises(ValueError, match=r"`context_layers`.*context_layers=0"):
        ConvolutionalConfig(context_layers=0)


def test_wrong_inputs_are_named():
    with pytest.raises(ValueError, match=r"`kernel_size` must be odd.*kernel_size=2"):
        ConvolutionStack(4, 2, kernel_size=2)
    with pytest.raises(ValueError, match=r"end at max_length=4.*length 5"):
        ConvolutionalEncoder(4, 1, 1, max_length=4)(random(1, 5, 3))
