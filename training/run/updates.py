"""`keras.Model.fit` as the loop over the updates of an epoch."""

import itertools

import keras


class Updates(keras.Model):
    """What `fit` trains: each of its steps is one update, which a `Trainer` makes.

    `fit` brings the batches and the events around an update. A train step of its own would reduce
    means of means, see one batch of an update at a time, and fail on several hosts (keras#20585).

    Args:
        update: A function of the batches of one update, which makes it; returns {name: float}.
        updated: A function of what `update` returned, called after it; returns whether to stop.
        accumulate: Number of batches of an update; the last of an epoch may have fewer.
    """

    def __init__(self, update, updated, accumulate):
        super().__init__(name="updates")
        self.update, self.updated, self.accumulate = update, updated, accumulate
        self.compile(jit_compile=False)  # an optimizer of no variables: `update` has its own
        self.built = True

    def make_train_function(self, force=False):
        def train(*arguments):
            *state, iterator = arguments  # JAX's `fit` hands a state through
            values = self.update(tuple(itertools.islice(iterator, self.accumulate)))
            return (values, *state) if state else values

        self.train_function = train

    def fit_epoch(self, dataset, epoch, updates):
        """Makes so many updates of an epoch; returns whether it was asked to stop."""
        self.fit(
            dataset, initial_epoch=epoch, epochs=epoch + 1, steps_per_epoch=updates,
            callbacks=[_AfterUpdate()], shuffle=False, verbose=0,
        )  # fmt: skip
        return self.stop_training


class _AfterUpdate(keras.callbacks.Callback):
    """Hands what an update returned on, and ends `fit` where that asks for it."""

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = self.model.updated(logs)
