"""A SavedModel run as TensorFlow Serving runs it: a session, the tag `serve`, tensors by name.

The one place that reaches below TensorFlow's public Python: for the export's check, and for the
development server.
"""

import contextlib
import ctypes
import importlib.util
import pathlib

import numpy as np

SERVE_TAGS = ("serve",)
INIT_SIGNATURE = "__saved_model_init_op"


class NotExportedError(RuntimeError):
    """The installed TensorFlow does not let out a C or C++ function; the message names it."""


class SavedSession:
    """A SavedModel loaded into a session of its own.

    Unlike `tf.saved_model.load`, this is the server's path: the graph is restored, not re-traced,
    variables are found by their handles, and what is fed is not held against the signature's static
    shape.

    Args:
        path: the folder that holds `saved_model.pb`.
        tags: the tags of the meta graph.
        config: a `ConfigProto`; None for TensorFlow's defaults.

    Attributes:
        signatures: a dict from name to `SignatureDef`, without the initialiser.

    Raises:
        Whatever TensorFlow raises when the graph or its variables cannot be loaded.
    """

    def __init__(self, path, tags=SERVE_TAGS, config=None):
        import tensorflow as tf

        register_text_ops()
        graph = tf.Graph()
        # No soft placement: the server has none, so a pinned node fails here as it does there.
        config = tf.compat.v1.ConfigProto() if config is None else config
        self.session = tf.compat.v1.Session(graph=graph, config=config)
        try:
            with graph.as_default():
                self.meta_graph = tf.compat.v1.saved_model.load(self.session, list(tags), str(path))
        except BaseException:
            self.session.close()
            raise
        graph.finalize()
        self.session._extend_graph()
        self.signatures = {
            name: signature
            for name, signature in sorted(self.meta_graph.signature_def.items())
            if name != INIT_SIGNATURE
        }
        self._handles = {}

    def run(self, signature, inputs):
        """Runs one signature.

        Args:
            signature: its name.
            inputs: a dict from input names to arrays.

        Returns:
            A dict from output names to NumPy arrays.
        """
        definition = self.signatures[signature]
        outputs = sorted(definition.outputs)
        values = self.call(
            {info.name: inputs[name] for name, info in definition.inputs.items()},
            [definition.outputs[name].name for name in outputs],
        )
        return dict(zip(outputs, values, strict=True))

    def call(self, feeds, fetches, timeout=None):
        """Runs the graph. Python's own `Session.run` would check shapes, which C++ does not.

        Args:
            feeds: a dict from tensor names to arrays.
            fetches: tensor names.
            timeout: seconds after which the run is given up, or None.

        Returns:
            A list of NumPy arrays, one for each fetch; strings as bytes in an object array.

        Raises:
            tf.errors.OpError: what the session says.
        """
        from tensorflow.core.protobuf import config_pb2
        from tensorflow.python.client import pywrap_tf_session

        milliseconds = 0 if timeout is None else max(1, int(timeout * 1000))
        options = config_pb2.RunOptions(timeout_in_ms=milliseconds)
        buffer = pywrap_tf_session.TF_NewBufferFromString(options.SerializeToString())
        try:
            feed = {self._handle(name): np.asarray(array) for name, array in feeds.items()}
            outputs = [self._handle(name) for name in fetches]
            values = self.session._call_tf_sessionrun(buffer, feed, outputs, [], None)
        finally:
            pywrap_tf_session.TF_DeleteBuffer(buffer)
        # A single string comes as `bytes`, which NumPy would take to end at its last zero.
        return [np.array(v, object) if isinstance(v, bytes) else v for v in values]

    def _handle(self, name):
        if name not in self._handles:
            self._handles[name] = self.session.graph.get_tensor_by_name(name)._as_tf_output()
        return self._handles[name]

    def close(self):
        """Frees the session; nothing may be running in it."""
        self.session.close()
        self._handles.clear()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def native_load_error(path):
    """What the server's C++ loader says of a SavedModel: an error, or None if it loads.

    Raises:
        NotExportedError: The installed TensorFlow does not export the loader in its C interface.
    """
    register_text_ops()
    library = _c_library()
    status, options = library.TF_NewStatus(), library.TF_NewSessionOptions()
    graph = library.TF_NewGraph()
    tags = (ctypes.c_char_p * len(SERVE_TAGS))(*(tag.encode() for tag in SERVE_TAGS))
    session = library.TF_LoadSessionFromSavedModel(
        options, None, str(path).encode(), tags, len(SERVE_TAGS), graph, None, status
    )
    code, message = (
        library.TF_GetCode(status),
        library.TF_Message(status).decode("utf-8", "replace"),
    )
    if session:
        library.TF_DeleteSession(session, status)
    library.TF_DeleteGraph(graph)
    library.TF_DeleteSessionOptions(options)
    library.TF_DeleteStatus(status)
    return message if code else None


@contextlib.contextmanager
def without_compilation():
    """Inside, XLA refuses to compile, as it does in a server that was not started for it.

    Raises:
        NotExportedError: The installed TensorFlow does not export what turns it off.
    """
    forbid_compilation()
    try:
        yield
    finally:
        _function("_ZN10tensorflow20EnableXlaCompilationEv")()


def forbid_compilation():
    """From now on, XLA refuses to compile in this process: what the server's main() calls.

    Raises:
        NotExportedError: The installed TensorFlow does not export what turns it off.
    """
    _function("_ZN10tensorflow21DisableXlaCompilationEv")()  # tensorflow::DisableXlaCompilation()


def _function(symbol):
    try:
        return getattr(_library(), symbol)
    except AttributeError:
        raise NotExportedError(f"TensorFlow's library does not export {symbol}") from None


def _library():
    import tensorflow as tf

    folder = tf.sysconfig.get_lib()
    found = sorted(pathlib.Path(folder).glob("libtensorflow_cc.*"))
    if not found:
        raise NotExportedError(f"there is no libtensorflow_cc in {folder}")
    return ctypes.CDLL(str(found[0]))


def _c_library():
    library = _library()
    pointer, integer, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    prototypes = {
        "TF_NewStatus": (pointer,),
        "TF_NewSessionOptions": (pointer,),
        "TF_NewGraph": (pointer,),
        "TF_GetCode": (integer, pointer),
        "TF_Message": (text, pointer),
        "TF_DeleteSession": (None, pointer, pointer),
        "TF_DeleteGraph": (None, pointer),
        "TF_DeleteSessionOptions": (None, pointer),
        "TF_DeleteStatus": (None, pointer),
        "TF_LoadSessionFromSavedModel": (
            pointer, pointer, pointer, text, ctypes.POINTER(text), integer, pointer, pointer,
            pointer,
        ),
    }  # fmt: skip
    for name, (result, *arguments) in prototypes.items():
        function = getattr(library, name, None)
        if function is None:
            raise NotExportedError(f"TensorFlow's library does not export {name}")
        function.restype, function.argtypes = result, arguments
    return library


def register_text_ops():
    """Loads TensorFlow Text's ops, if installed, but not its Python side, which imports Keras.

    Returns:
        Whether they are there.
    """
    import tensorflow as tf

    found = importlib.util.find_spec("tensorflow_text")
    if found is None:
        return False
    for library in sorted(pathlib.Path(found.origin).parent.glob("python/ops/*.so")):
        tf.load_op_library(str(library))
    return True
