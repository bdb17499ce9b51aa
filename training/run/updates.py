"""The loop over the updates of an epoch, by `keras.Model.fit`."""

import itertools

import keras


class Updates(keras.Model):
    """A model for `fit` whose steps are updates, made by a `Trainer`.

    `fit` provides the batches and the events around an update. Keras's own train step would average
    the means of batches, see only one batch of an update at a time, and fail on several hosts
    (keras#20585).

    Args:
        update: A function that makes an update from its batches and returns {name: float}.
        updated: A function of this result, called after the update; returns whether to stop.
        accumulate: Number of batches in an update; the last update of an epoch may have fewer.
    """

    def __init__(self, update, updated, accumulate):
        super().__init__(name="updates")
        self.update, self.updated, self.accumulate = update, updated, accumulate
        self.compile(jit_compile=False)  # its optimizer is not used: `update` has its own
        self.built = True

    def make_train_function(self, force=False):
        def train(*arguments):
            *state, iterator = arguments  # with JAX, `fit` also passes a state
            values = self.update(tuple(itertools.islice(iterator, self.accumulate)))
            return (values, *state) if state else values

        self.train_function = train

    def fit_epoch(self, dataset, epoch, updates):
        """Makes `updates` updates of an epoch; returns whether `updated` stopped it."""
        self.fit(
            dataset, initial_epoch=epoch, epochs=epoch + 1, steps_per_epoch=updates,
            callbacks=[_AfterUpdate()], shuffle=False, verbose=0,
        )  # fmt: skip
        return self.stop_training


class _AfterUpdate(keras.callbacks.Callback):
    """Passes the result of each update to `updated`, and ends `fit` if that says so."""

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = self.model.updated(logs)
