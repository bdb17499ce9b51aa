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
    if start.kind == "classify":
        kept = [(of.get_layer("embedding"), of.get_layer("encoder")) for of in (model, its)]
        mine, others = ([weight for layer in two for weight in layer.weights] for two in kept)
    else:
        mine, others = model.weights, its.weights
    for weight, value in zip(mine, others, strict=True):
        weight.assign(value)
        if weight.path.endswith("bias"):
            weight.assign(np.maximum(ops.convert_to_numpy(weight), LEAST_BIAS))
