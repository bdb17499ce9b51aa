"""The processes that train together: what is the same on every backend."""

import abc
import contextlib
import json

import numpy as np

from training.run.files import RunError
from training.run.watchdog import Watchdog


class BaseWorkers(abc.ABC):
    """The processes that train together, seen from one of them.

    A subclass connects them with a backend.

    Args:
        cluster: A `cluster.Cluster`, or None for this process alone.
        devices: Number of devices of this host to train on.
        timeout: Seconds to wait for another worker before the run ends with an error.

    Attributes:
        index: Index of this worker.
        count: Number of workers.
        chief: Whether this worker writes files.
        devices: Number of devices of each worker.
        finishes: Whether this process can evaluate and export the trained model.
        lost: The exception that the backend raises when another worker is lost.

    Raises:
        RunError: If there are not enough devices, or the other workers do not answer.
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
        """A function of int32 ids `[batch, length]`, compiled by the backend.

        It reads the weights of the model at each call, and returns a NumPy array.
        """

    @abc.abstractmethod
    def _rows(self, row):
        """The rows of all workers, int32 `[workers, n]`; `row` is this worker's, int32 `[n]`."""

    @contextlib.contextmanager
    def answering(self):
        """A context in which waiting for other workers has a timeout, and errors are explained."""
        if self._watchdog is None:
            yield
            return
        try:
            with self._watchdog:
                yield
        except self.lost as error:
            raise RunError(
                f"Worker {self.index} of {self.count} lost another worker "
                f"({str(error).splitlines()[0]}): start all workers again, and the run resumes "
                "from its last checkpoint"
            ) from error

    def gather(self, value):
        """The values of all workers, in their order; all workers have to call this.

        Args:
            value: This worker's, which JSON can hold.
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
