"""A finished model without its head, and the head for a few candidates, chosen in a run."""

import tensorflow as tf

from keras_tfmr.compat import take
from keras_tfmr.finished.embedding import FinishedEmbedding, FinishedHead
from keras_tfmr.finished.int8 import Int8Product
from keras_tfmr.finished.products import Part
from keras_tfmr.models import TranslationModel
from keras_tfmr.models.graph import calls_of


def without_head(model):
    """A finished `TranslationModel` up to the vectors that its logits are made of, and its head.

    Returns:
        A `TranslationModel` with the same layers, whose outputs are vectors `[batch, target,
        width]`; and the head, `Columns` or `Int8Columns`.

    Raises:
        ValueError: If the logits are made by another layer than an `LMHead` or a
            `PositionalEmbedding`, or in steps without caches.
    """
    if not isinstance(model, TranslationModel):
        raise ValueError(
            f"A shortlist needs a TranslationModel. Received: a {type(model).__name__}"
        )
    inputs, outputs, calls = calls_of(model)
    logits = outputs[model.logits_place]
    [call] = [call for call in calls if any(out is logits for out in call.outputs)]
    head = call.operation
    if not isinstance(head, (FinishedHead, FinishedEmbedding)):
        raise ValueError(
            "A shortlist needs a model of `for_decoding`, whose logits an LMHead or a "
            f"PositionalEmbedding makes. Received: {head.name!r}, a {type(head).__name__}"
        )
    if (why := model.why_not_cached()) is not None:
        raise ValueError(f"A shortlist needs a model that decodes with caches: {why}")
    headless = type(model)(inputs, call.args[0], name=model.name)
    headless.precision = model.precision
    product = head.logits
    return headless, Int8Columns(product) if isinstance(product, Int8Product) else Columns(product)


class Columns(Part):
    """Some columns of a `Product`, chosen in a run.

    Its kernel is held transposed, because a gather copies whole rows.
    """

    def __init__(self, product):
        super().__init__()
        self.product = product
        self.rows = self.hold(tf.transpose(product.kernel.value), product.kernel.dtype)

    def chosen(self, ids):
        """The function from vectors float32 `[rows, width]` to the columns of ids int32 `[n]`."""
        # Once transposed: for few rows, a product that transposes takes eight times as long.
        kernel = tf.transpose(take(tf.convert_to_tensor(self.rows), ids))  # [width, n]
        bias = self.product.bias
        bias = None if bias is None else take(tf.convert_to_tensor(bias), ids)

        def multiplied(x):
            y = tf.cast(tf.matmul(tf.cast(x, kernel.dtype), kernel), "float32")
            return y if bias is None else y + bias

        return multiplied


class Int8Columns(Part):
    """Some units of an `Int8Product`, chosen in a run."""

    def __init__(self, product):
        super().__init__()
        self.product = product

    def chosen(self, ids):
        """As that of `Columns`."""
        product = self.product
        held = map(tf.convert_to_tensor, (product.kernel, product.offset, product.unit_range))
        units = [take(each, ids) for each in held]
        return lambda x: product.sums(x, *units, constant=False)
