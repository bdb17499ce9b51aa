"""The processes that train together: what they are to each other on every backend."""

import abc
import contextlib
import json

import numpy as np

from training.run.files import RunError
from training.run.watchdog import Watchdog


class BaseWorkers(abc.ABC):
    """The processes that train together, of which this is one.

    A subclass joins them by means of a backend.

    Args:
        cluster: A `cluster.Cluster`, or None for this process alone.
        devices: Devices of this host that share its part of each batch.
        timeout: Seconds without an answer of another worker, until that is an error.

    Attributes:
        index: Of this worker.
        count: Of workers.
        chief: Whether this one writes.
        devices: Of each worker.
        finishes: Whether its process can evaluate and export what was trained.
        lost: The error that the backend raises where another worker is lost.

    Raises:
        RunError: If there are no such devices, or the other workers do not answer.
    """

    finishes, lost = True, ()

    def __init__(self, cluster=None, devices=1, timeout=300.0):
        self.index, self.count, self.devices = 0, 1, devices
        if cluster is not None:
            self.index, self.count = cluster.index, len(cluster.addresses)
        self.chief = self.index == 0
        self._watchdog = Watchdog(timeout) if self.count > 1 else None
        with self.answering():
            self._join(cluster, timeout)

    @abc.abstractmethod
    def _join(self, cluster, timeout):
        """Finds the devices, and the other workers if there are any."""

    @abc.abstractmethod
    def scope(self):
        """A context in which variables are made on all devices."""

    @abc.abstractmethod
    def trainer(self, *args, **options):
        """A `Trainer` whose updates these workers share."""

    @abc.abstractmethod
    def compiled(self, function, model):
        """A function of int32 ids `[batch, length]`, compiled as the backend does.

        It reads the weights of the model anew at each call, and returns a NumPy array.
        """

    @abc.abstractmethod
    def _rows(self, row):
        """What each worker gave, int32 `[workers, n]`; `row` is int32 `[n]`."""

    @contextlib.contextmanager
    def answering(self):
        """Inside, other workers are waited for: not for ever, and errors say who is missing."""
        if self._watchdog is None:
            yield
            return
        try:
            with self._watchdog:
                yield
        except self.lost as error:
            raise RunError(
                f"Worker {self.index} of {self.count} lost another one "
                f"({str(error).splitlines()[0]}): start all of them again, and the run goes on "
                "from its last checkpoint"
            ) from error

    def gather(self, value):
        """What every worker gave, in the order of workers; they all have to call it.

        Args:
            value: Anything that goes to JSON.
        """
        if self.count == 1:
            return [value]
        content = np.frombuffer(json.dumps(value).encode(), np.uint8).astype(np.int32)
        with self.answering():
            sizes = self._rows(np.array([len(content)], np.int32))[:, 0]
            table = self._rows(np.pad(content, (0, sizes.max() - len(content))))
        return [
            json.loads(row[:size].astype(np.uint8).tobytes())
            for row, size in zip(table, sizes, strict=True)
        ]
