"""One version of the model: a SavedModel in a session, loaded as TensorFlow Serving loads it.

TensorFlow is imported by the first load, so that the ports are open before that.
"""

import collections
import concurrent.futures
import pathlib

import numpy as np

from .errors import Code, ServingError

INIT_SIGNATURE = "__saved_model_init_op"
PASSES_OFF = ("arithmetic", "dependency", "loop", "shape")
WARMUP_FILE = pathlib.Path("assets.extra", "tf_serving_warmup_requests")


class Model:
    """A loaded version that has answered the requests of its warm-up file.

    Args:
        path: The version's folder.
        threads: Operations that run at the same time. Each has one thread: those of a translator
            are too small to be divided.

    Raises:
        tf.errors.OpError: The SavedModel does not load, or a warm-up request fails.
    """

    def __init__(self, path, threads):
        import tensorflow as tf

        from keras_tfmr.export.saved_session import register_text_ops

        register_text_ops()
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=1, inter_op_parallelism_threads=threads
        )
        # Only functions are inlined: the other passes take a second for each signature.
        rewrites = config.graph_options.rewrite_options
        rewrites.meta_optimizer_iterations = rewrites.ONE
        rewrites.memory_optimization = rewrites.NO_MEM_OPT
        for name in PASSES_OFF:
            setattr(rewrites, f"{name}_optimization", rewrites.OFF)
        rewrites.constant_folding = rewrites.remapping = rewrites.layout_optimizer = rewrites.OFF
        # A session, because tf.saved_model.load also loads models that TensorFlow Serving refuses.
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            with self._session.graph.as_default():
                loaded = tf.compat.v1.saved_model.load(self._session, ["serve"], str(path))
            self.signatures = dict(loaded.signature_def)
            if (path / WARMUP_FILE).exists():
                self._warm_up(tf.data.TFRecordDataset(str(path / WARMUP_FILE)), threads)
        except BaseException:
            self.close()
            raise

    def _warm_up(self, records, threads):
        import tensorflow as tf
        from tensorflow_serving.apis import prediction_log_pb2

        calls = collections.defaultdict(list)
        for record in records.as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            if log.WhichOneof("log_type") == "predict_log":  # not Classify or Regress
                request = log.predict_log.request
                name, signature = self.signature(request.model_spec.signature_name)
                inputs = request.inputs.items()
                feeds = {signature.inputs[key].name: tf.make_ndarray(one) for key, one in inputs}
                calls[name].append((feeds, [one.name for one in signature.outputs.values()]))
        # Side by side: the first request of a signature is mostly work of one thread.
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda group: [self.run(*call) for call in group], calls.values()))

    def signature(self, name):
        """(name, SignatureDef) of a signature; "" stands for `serving_default`."""
        name = name or "serving_default"
        known = self.signatures.keys() - {INIT_SIGNATURE}
        if name not in known:
            text = f'Serving signature key "{name}" not found. Known: {", ".join(sorted(known))}'
            raise ServingError(Code.FAILED_PRECONDITION, text)
        return name, self.signatures[name]

    def run(self, feeds, fetches, timeout=None):
        """Runs the graph, for at most `timeout` seconds if it is not None.

        Returns:
            A list of arrays, one for each name in `fetches`; strings are bytes in an object array.
        """
        import tensorflow as tf

        milliseconds = 0 if timeout is None else max(1, int(timeout * 1000))
        options = tf.compat.v1.RunOptions(timeout_in_ms=milliseconds)
        values = self._session.run(fetches, feeds, options)
        # A single string comes as bytes, from which NumPy would strip zero bytes at the end.
        return [np.array(v, object) if isinstance(v, bytes) else np.asarray(v) for v in values]

    def close(self):
        """Frees the session and stops what still runs in it."""
        self._session.close()
