"""What a new model takes from the run that it begins from: its config and its weights."""

import numpy as np
from keras import ops

from keras_tfmr.presets.models import read_config

# A published model bans subwords by biases of -1e9, which label smoothing would add to the loss.
# A bias of -50 bans them as well.
LEAST_BIAS = -50.0


def config_for(start, task):
    """The config of the model that learns a task: that of the run, with other dropout."""
    return read_config(task.kind, {**start.config, **task.settings.dropouts()})


def assign(start, model):
    """Gives the weights to a new model of the same sizes; a classifier's labels may be others."""
    its = start.folder.model(start.weights)
    mine, others = kept_weights(model, start.kind), kept_weights(its, start.kind)
    for weight, value in zip(mine, others, strict=True):
        weight.assign(value)
        if weight.path.endswith("bias"):
            weight.assign(np.maximum(ops.convert_to_numpy(weight), LEAST_BIAS))


def kept_weights(model, kind):
    """The weights that a start gives: all, but for those that make a classifier's labels."""
    if kind == "classify":
        return model.get_layer("embedding").weights + model.get_layer("encoder").weights
    return model.weights
