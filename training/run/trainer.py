"""Updates, from batches to new weights, on every backend.

An update follows the gradient of one number: the sum of the token losses of all its batches, on all
devices of all workers, divided by the number of their real tokens. Batches differ in their number
of real tokens, so a mean of means would give the tokens of a badly filled batch more weight.
"""

import keras
import numpy as np

from keras_tfmr.layers import Dropout

SUMS = ("loss", "weight", "right")  # over the tokens of an update
CONTROL = ("share", "stop", "overdue")  # messages between the workers
MADE = ("norm", "made", "rate")  # about the update itself
BETA_1, BETA_2, EPSILON = 0.9, 0.98, 1e-9  # arXiv 1706.03762, section 5.3


class Trainer:
    """A model with its optimizer: Adam, and a moving average of the weights.

    A subclass implements `gradient`, `add` and `apply` with a backend.

    Args:
        task: A `task.Translation` or another task.
        model: The model in training.
        averaged: A second model of the same config, in float32, for the averaged weights. It is
            separate, so that evaluating it never changes the weights in training.
        schedule: The learning rate, a function of (updates made, share of the budget).
        average: Decay of the moving average; 0 for none (the average is then the weights). It
            grows as n / (n + 9) up to this value, so that the average is useful from the start.
        clip_norm: Maximum global norm of an update's gradient; 0 for no limit.
        seed: Seed of the dropout.

    Reference: Kingma and Ba 2015, Adam (arXiv 1412.6980), algorithm 1 in the form of the end of
    section 2; Polyak and Juditsky 1992 for averages.
    """

    def __init__(self, task, model, averaged, schedule, *, average=0.0, clip_norm=0.0, seed=0):
        if not 0 <= average < 1:
            raise ValueError(f"`average` must be in [0, 1). Received: {average!r}")
        self.task, self.model, self.averaged, self.schedule = task, model, averaged, schedule
        self.average, self.clip_norm, self.seed = average, clip_norm, seed
        self.weights = model.trainable_variables
        self.updates = keras.Variable(0, dtype="int32", trainable=False, name="updates")
        self.momentums = [self._beside(weight, "momentum") for weight in self.weights]
        self.velocities = [self._beside(weight, "velocity") for weight in self.weights]
        self.averages = [self._beside(weight, "average") for weight in self.weights if average]
        self.begin_averages()

    def _beside(self, weight, name):
        return keras.Variable(
            np.zeros(weight.shape, "float32"), dtype="float32", trainable=False, name=name
        )

    def begin_averages(self):
        """Sets the averages to the weights, as before the first update."""
        for average, weight in zip(self.averages, self.weights, strict=False):
            average.assign(weight)

    def update(self, batches, number, control=(0.0, 0.0, 0.0)):
        """Makes one update from its batches.

        Args:
            batches: This worker's rows of each batch.
            number: Number of the first batch, unique over all epochs; dropout depends on it.
            control: This worker's values of `CONTROL`; those of all workers are added.

        Returns:
            {name: float} of `SUMS`, `CONTROL` and `MADE`, the same on all workers. `made` is 0 if
            the loss or the gradient was not finite; no variable has changed then.
        """
        total = None
        for place, batch in enumerate(batches):
            part = self.gradient(batch, number + place)
            total = part if total is None else self.add(total, part)
        values = self.apply(total, np.array(control, "float32"))
        return dict(zip((*SUMS, *CONTROL, *MADE), values.tolist(), strict=True))

    def use_noise(self, noise):
        """Makes the dropout layers of the model draw from an object with `bytes` and `next`."""
        self.noise = noise
        for layer in self.model._flatten_layers():
            if isinstance(layer, Dropout):
                layer._bytes = noise.bytes
            elif hasattr(layer, "seed_generator"):
                layer.seed_generator.next = noise.next

    def gradient(self, batch, number):
        """(gradients of the summed loss, `SUMS`) of a batch."""
        raise NotImplementedError

    def add(self, total, part):
        """The sum of two results of `gradient`."""
        raise NotImplementedError

    def apply(self, total, control):
        """Changes the weights; returns the values of `update` as a NumPy array."""
        raise NotImplementedError

    def variables(self):
        """{name: variable} of all variables that change in training, by the weights' paths."""
        named = {f"model/{variable.path}": variable for variable in self.model.weights}
        for kind in ("momentum", "velocity", "average"):
            slots = getattr(self, {"velocity": "velocities"}.get(kind, f"{kind}s"))
            for weight, slot in zip(self.weights, slots, strict=False):
                named[f"{kind}/{weight.path}"] = slot
        return named | {"updates": self.updates}

    def take_averages(self):
        """Copies the averaged weights into the `averaged` model and returns it."""
        from training.run.checkpoints import value_of

        for weight, average in zip(
            self.averaged.trainable_variables, self.averages or self.weights, strict=True
        ):
            weight.assign(value_of(average))
        return self.averaged
