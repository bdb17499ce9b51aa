"""Loads one version of the model into a session, as TensorFlow Serving does, and warms it up.

TensorFlow is imported by the first load, so that the ports are open before that.
"""

import collections
import concurrent.futures

from .errors import Code, StatusError

PASSES_OFF = ("arithmetic", "dependency", "loop", "shape")


def load(path, threads):
    """A `SavedSession` that has answered the requests of its warm-up file.

    Args:
        path: The version's folder.
        threads: Operations that run at the same time. Each has one thread: those of a translator
            are too small to be divided.

    Raises:
        tf.errors.OpError: The SavedModel does not load.
        StatusError: A warm-up request fails.
    """
    from keras_tfmr.export import warmup
    from keras_tfmr.export.saved_session import SavedSession

    session = SavedSession(path, config(threads))
    try:
        by_signature, problems = collections.defaultdict(list), []
        for request in warmup.read(path, problems):
            by_signature[request.signature].append(request)
        # Side by side: the first request of a signature is mostly work of one thread.
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            for requests in by_signature.values():
                pool.submit(warmup.replay, session, requests, problems)
        if problems:
            raise StatusError(Code.FAILED_PRECONDITION, problems[0])
    except BaseException:
        session.close()
        raise
    return session


def config(threads):
    """The session's `ConfigProto`."""
    import tensorflow as tf

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
    return config
