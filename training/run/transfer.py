"""The config and the weights that a new model takes from the run it begins from."""

import numpy as np
from keras import ops

# A published model bans subwords by biases of -1e9, which label smoothing would add to the loss.
# A bias of -50 bans them as well.
LEAST_BIAS = -50.0


def config_for(start, task):
    """The config of the model that learns a task: that of the run, with other dropout."""
    return task.config_of({**start.config, **task.settings.of_model()})


def assign(start, task, model):
    """Gives the weights of the run to a new model of the same sizes."""
    trained = task.transferred(start.folder.model(start.weights))
    for weight, value in zip(task.transferred(model), trained, strict=True):
        weight.assign(value)
        if weight.path.endswith("bias"):
            weight.assign(np.maximum(ops.convert_to_numpy(weight), LEAST_BIAS))
