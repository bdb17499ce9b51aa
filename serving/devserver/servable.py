"""One version of one model: a SavedModel in a session, loaded and run as the C++ server does."""

import gc
import threading

from keras_tfmr.export import warmup
from keras_tfmr.export.saved_session import SavedSession

from . import memory
from .errors import deadline_exceeded, invalid, left


class Lease:
    """Counts the users of a servable, so that it is closed only after its last request."""

    def __init__(self):
        self._lock = threading.Lock()
        self.users = 0

    def __enter__(self):
        with self._lock:
            self.users += 1

    def __exit__(self, *unused):
        with self._lock:
            self.users -= 1

    def hold(self, job):
        """Counts a job of a thread pool as a user until it ends, even if no client waits for it."""
        self.__enter__()
        job.add_done_callback(self.__exit__)


class Servable:
    """A loaded SavedModel.

    Args:
        name: The model's name.
        version: The version's number.
        path: The version's directory.
        tags: The tags of the meta graph.
        session_config: ConfigProto, or None for TensorFlow's defaults.

    Raises:
        tf.errors.OpError: The SavedModel cannot be loaded.
    """

    def __init__(self, name, version, path, tags=("serve",), session_config=None):
        self.name = name
        self.version = version
        self.path = path
        self.lease = Lease()
        self._session = SavedSession(path, tags, session_config)
        self.signatures = dict(self._session.meta_graph.signature_def)
        self.batching = None  # the queue parameters of this version, if it is batched
        gc.collect()
        gc.freeze()  # else each collection, even during a request, scans the whole Python graph

    def run(self, feeds, fetches, deadline=None):
        """Runs the graph without TensorFlow's Python checks of shapes and types, as C++ does.

        Args:
            feeds: Dict from tensor name to numpy array.
            fetches: Tensor names.
            deadline: Time of the monotonic clock in seconds, or None. A run past it is not started.

        Returns:
            List of numpy arrays, one per fetch.

        Raises:
            ServingError: DEADLINE_EXCEEDED, the deadline has passed.
            tf.errors.OpError: The session failed.
        """
        timeout = left(deadline)
        if timeout == 0.0:
            raise deadline_exceeded()
        return self._session.call(feeds, fetches, timeout)

    def close(self):
        """Frees the session, in which nothing may be running."""
        self._session.close()
        self._session = None
        gc.unfreeze()
        gc.collect()
        memory.give_back()


def warmup_requests(path):
    """The requests of a version's warm-up file.

    Args:
        path: The version's directory.

    Yields:
        (kind of log, request). Records of kinds that this server cannot run are skipped.

    Raises:
        ServingError: A record is not a PredictionLog, or there are more than 1000 records.
        tf.errors.OpError: The file is not a TFRecord file.
    """
    try:
        for kind, request in warmup.records(path):
            if kind in warmup.METHODS.values():
                yield kind, request
    except ValueError as error:
        raise invalid(str(error)) from error
