"""A version in a session, as TensorFlow Serving loads it, and the errors of requests to it."""

import grpc
import tensorflow as tf

from keras_tfmr.compat import usable_cores
from keras_tfmr.export import warmup
from keras_tfmr.export.saved_session import SavedSession

STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


def load(path):
    """A `SavedSession` that has answered the requests of its warm-up file; an error if it fails."""
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=usable_cores())
    config.intra_op_parallelism_threads = 1  # a translator's operations are too small for more
    # Optimising the graph takes seconds for each signature, and saves nothing that is measurable.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    session = SavedSession(path, config)
    try:
        for request in warmup.read(path):
            warmup.replay(session, request)
    except ValueError as error:
        session.close()
        raise tf.errors.FailedPreconditionError(None, None, str(error)) from error
    return session


def signature_of(session, name):
    """The SignatureDef of this name; an error if there is none."""
    if name not in session.signatures:
        text = f'Serving signature key "{name}" not found. Known: {", ".join(session.signatures)}'
        raise tf.errors.FailedPreconditionError(None, None, text)
    return session.signatures[name]


def code_and_text(error):
    """The gRPC status code and the sentence for an exception, cut as TensorFlow Serving does."""
    if isinstance(error, tf.errors.OpError):
        return STATUS_CODES[error.error_code], error.message[:1024]
    if isinstance(error, RecursionError):
        return grpc.StatusCode.INVALID_ARGUMENT, "the JSON is nested too deep"
    if isinstance(error, OverflowError | TypeError | ValueError):  # of what cannot be read
        return grpc.StatusCode.INVALID_ARGUMENT, str(error)[:1024]
    return grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"[:1024]
