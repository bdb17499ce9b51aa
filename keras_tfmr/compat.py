"""Everything that uses another package's private API, each with the reason and its replacement.

Tried with TensorFlow 2.20 and 2.21, tensorflow-text 2.20.0 and 2.21.1.
"""

import functools
import hashlib


def sentencepiece_ops(model_bytes, out_type, name):
    """A `tf_text.SentencepieceTokenizer` that outlives TensorFlow's cache of ops.

    Private: `_SentencepieceModelResource`, `_model_resource`. The public class creates its model
    without a name, so that it belongs to the op that made it, and is lost when TensorFlow clears
    its cache of ops, as `keras.utils.set_random_seed` makes it do. A public `shared_name` argument
    of `tf_text.SentencepieceTokenizer` would replace this.
    """
    import tensorflow_text as tf_text

    ops = tf_text.SentencepieceTokenizer(model_bytes, out_type=out_type)
    ops._model_resource = _lasting_model()(model_bytes, name)
    return ops


@functools.cache
def _lasting_model():
    from tensorflow_text.python.ops import sentencepiece_tokenizer as text_ops

    class LastingModel(text_ops._SentencepieceModelResource):
        def _create_resource(self):
            name = "sentencepiece_" + hashlib.sha256(self._model).hexdigest()
            return text_ops.gen_sentencepiece_tokenizer.sentencepiece_op(
                model=self._model, shared_name=name
            )

    return LastingModel


def registered_ops():
    """The names of all ops that this process knows.

    Private: `pywrap_tf_session`. `tf.raw_ops` lists fewer: no op whose name begins with `_`.
    """
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.client import pywrap_tf_session

    registered = pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())
    return {op.name for op in op_def_pb2.OpList.FromString(registered).op}


def finish_graph(session):
    """Gives a session its complete graph, so that threads need not do it at their first run.

    Private: `_extend_graph`. `Session.run` does it too, with a lock.
    """
    session._extend_graph()


def tensor_handle(graph, name):
    """The tensor of this name for `run_session`. Private: `_as_tf_output`."""
    return graph.get_tensor_by_name(name)._as_tf_output()


def run_session(session, feeds, fetches, timeout):
    """Runs a session without Python's checks of shapes, as TensorFlow Serving does.

    Private: `_call_tf_sessionrun`, `pywrap_tf_session`. The public `Session.run` refuses inputs
    that do not fit a signature's shapes, which a server runs, and `Session.make_callable` takes no
    timeout for a single call.

    Args:
        session: A `tf.compat.v1.Session`.
        feeds: {`tensor_handle`: array}.
        fetches: A list of `tensor_handle`.
        timeout: Seconds after which the run is stopped, or None.
    """
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.client import pywrap_tf_session

    milliseconds = 0 if timeout is None else max(1, int(timeout * 1000))
    options = config_pb2.RunOptions(timeout_in_ms=milliseconds)
    buffer = pywrap_tf_session.TF_NewBufferFromString(options.SerializeToString())
    try:
        return session._call_tf_sessionrun(buffer, feeds, fetches, [], None)
    finally:
        pywrap_tf_session.TF_DeleteBuffer(buffer)
