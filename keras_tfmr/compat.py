"""The uses of private API of other packages, each with what public API would replace it.

Tried with Keras 3.15.1.
"""


def keras_mask(x):
    """The mask that a layer gave its output `x`, or None.

    `keras.src.backend.get_keras_mask` is not exported; a public one would replace this. Keras fills
    in a layer's `mask` argument only if `x` is the only tensor among the arguments.
    """
    return getattr(x, "_keras_mask", None)


def flatten_layers(layer):
    """A layer and all layers inside it.

    `keras.Model.layers` lists the direct ones of a model only; a public, recursive one would
    replace this.
    """
    return layer._flatten_layers()


def replace_layer(owner, name, new):
    """Puts a layer in the place of the sublayer `owner.<name>`, after `owner` was built.

    Keras itself unlocks the tracker of a built layer like this to quantise it or for LoRA. A public
    way to change a sublayer would replace this.
    """
    owner._tracker.unlock()
    owner._tracker.untrack(getattr(owner, name))
    setattr(owner, name, new)
    owner._tracker.lock()
