"""One version of one model: a SavedModel in a session, loaded and run as the C++ server does it."""

import ctypes
import gc
import glob
import os
import threading

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow_serving.apis import prediction_log_pb2

from .errors import deadline_exceeded, invalid, left

WARMUP_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
MAX_WARMUP_RECORDS = 1000


class Lease:
    """Counts who uses a servable, so that it is closed after its last request."""

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
        """Counts a job of a thread pool until it is over, whoever still waits for it."""
        self.__enter__()
        job.add_done_callback(self.__exit__)


class Servable:
    """A loaded SavedModel.

    Args:
        name: the model's name.
        version: the version's number.
        path: the version's directory.
        tags: the tags of the meta graph.
        session_config: ConfigProto, or None for TensorFlow's defaults.

    Raises:
        tf.errors.OpError: what the loader says.
    """

    def __init__(self, name, version, path, tags=("serve",), session_config=None):
        self.name = name
        self.version = version
        self.path = path
        self.lease = Lease()
        self._handles = {}
        graph = tf.Graph()
        self._session = tf.compat.v1.Session(graph=graph, config=session_config)
        try:
            with graph.as_default():
                loaded = tf.compat.v1.saved_model.load(self._session, list(tags), path)
        except Exception:
            self._session.close()
            raise
        graph.finalize()
        self._session._extend_graph()
        self.signatures = dict(loaded.signature_def)
        self.batching = None  # the queue parameters of this version, if it is batched
        gc.collect()
        gc.freeze()  # or the collector walks the whole Python graph again and again, mid-request

    def run(self, feeds, fetches, deadline=None):
        """Runs the graph without Python's own checks of shapes and types, as C++ does.

        Args:
            feeds: dict of tensor name to numpy array.
            fetches: tensor names.
            deadline: of the monotonic clock, or None; what is too late is not started.

        Returns:
            list of numpy arrays, one per fetch.

        Raises:
            ServingError: it is too late.
            tf.errors.OpError: what the session says.
        """
        timeout = left(deadline)
        if timeout == 0.0:
            raise deadline_exceeded()
        milliseconds = 0 if timeout is None else max(1, int(timeout * 1000))
        options = config_pb2.RunOptions(timeout_in_ms=milliseconds)
        buffer = pywrap_tf_session.TF_NewBufferFromString(options.SerializeToString())
        try:
            feed = {self._handle(name): array for name, array in feeds.items()}
            outputs = [self._handle(name) for name in fetches]
            values = self._session._call_tf_sessionrun(buffer, feed, outputs, [], None)
        finally:
            pywrap_tf_session.TF_DeleteBuffer(buffer)
        # A single string comes as `bytes`, which numpy would take to end at its last zero.
        return [np.array(v, object) if isinstance(v, bytes) else v for v in values]

    def _handle(self, name):
        if name not in self._handles:
            self._handles[name] = self._session.graph.get_tensor_by_name(name)._as_tf_output()
        return self._handles[name]

    def close(self):
        """Frees the session; nothing may be running in it."""
        self._session.close()
        self._handles.clear()
        self._session = None
        gc.unfreeze()
        gc.collect()


def warmup_requests(path):
    """The PredictRequests of a version's warm-up file.

    Args:
        path: the version's directory.

    Yields:
        PredictRequest; records of other kinds are passed over, as this server cannot run them.

    Raises:
        ServingError: a record is no PredictionLog, or there are too many.
        tf.errors.OpError: the file is no TFRecord.
    """
    file = os.path.join(path, WARMUP_FILE)
    if not os.path.exists(file):
        return
    for number, record in enumerate(tf.data.TFRecordDataset(file).as_numpy_iterator()):
        if number >= MAX_WARMUP_RECORDS:
            raise invalid(f"Number of warmup records exceeds the maximum ({MAX_WARMUP_RECORDS})")
        try:
            log = prediction_log_pb2.PredictionLog.FromString(record)
        except Exception as error:
            raise invalid(f"Failed to parse warmup record: {record[:60]!r} from {file}") from error
        if log.WhichOneof("log_type") == "predict_log":
            yield log.predict_log.request


def allow_xla(enabled):
    """Without the flag, a graph that asks for XLA fails here as it does in the real server."""
    if enabled:
        return
    for library in glob.glob(f"{tf.sysconfig.get_lib()}/libtensorflow_cc.so*"):
        ctypes.CDLL(library)._ZN10tensorflow21DisableXlaCompilationEv()
