"""Runs a SavedModel as TensorFlow Serving does: in a session, by its tags and tensor names.

The export's check and the development server use it. It is the only module that uses functions
below TensorFlow's public Python API.
"""

import contextlib
import ctypes
import importlib.util
import pathlib

import numpy as np

SERVE_TAGS = ("serve",)
INIT_SIGNATURE = "__saved_model_init_op"


class NotExportedError(RuntimeError):
    """The installed TensorFlow does not export a C or C++ function; the message names it."""


class SavedSession:
    """A SavedModel loaded into its own session.

    Unlike `tf.saved_model.load`, this loads a SavedModel as the server does: the graph is restored,
    not traced again, variables are found by their handles, and inputs are not checked against the
    static shapes of the signature.

    Args:
        path: The folder that holds `saved_model.pb`.
        tags: The tags of the meta graph.
        config: A `ConfigProto`; None for TensorFlow's defaults.

    Attributes:
        signatures: A dict from name to `SignatureDef`, without the initialiser.

    Raises:
        Whatever TensorFlow raises when the graph or its variables cannot be loaded.
    """

    def __init__(self, path, tags=SERVE_TAGS, config=None):
        import tensorflow as tf

        register_text_ops()
        graph = tf.Graph()
        # Without soft placement, as in the server, so that pinned nodes fail here too.
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
            signature: Its name.
            inputs: A dict from input names to arrays.

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
        """Runs the graph without Python's `Session.run`, which checks shapes as C++ does not.

        Args:
            feeds: A dict from tensor names to arrays.
            fetches: Tensor names.
            timeout: Seconds after which the run is stopped, or None.

        Returns:
            A list of NumPy arrays, one for each fetch; strings as bytes in an object array.

        Raises:
            tf.errors.OpError: If the run fails or is stopped.
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
        # A single string comes as `bytes`, from which NumPy would strip zero bytes at the end.
        return [np.array(v, object) if isinstance(v, bytes) else v for v in values]

    def _handle(self, name):
        if name not in self._handles:
            self._handles[name] = self.session.graph.get_tensor_by_name(name)._as_tf_output()
        return self._handles[name]

    def close(self):
        """Frees the session; no run may be in progress."""
        self.session.close()
        self._handles.clear()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def native_load_error(path):
    """The error message of the server's C++ loader for a SavedModel, or None if it loads.

    Raises:
        NotExportedError: If the installed TensorFlow does not export the loader in its C API.
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
    """A context in which XLA refuses to compile, as in a server that does not enable it.

    Raises:
        NotExportedError: If the installed TensorFlow does not export the function for it.
    """
    forbid_compilation()
    try:
        yield
    finally:
        _function("_ZN10tensorflow20EnableXlaCompilationEv")()


def forbid_compilation():
    """Makes XLA refuse to compile in this process from now on, as the server's main() does.

    Raises:
        NotExportedError: If the installed TensorFlow does not export the function for it.
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
    """Loads TensorFlow Text's ops, but not its Python modules, which import Keras.

    Returns:
        Whether TensorFlow Text is installed.
    """
    import tensorflow as tf

    found = importlib.util.find_spec("tensorflow_text")
    if found is None:
        return False
    for library in sorted(pathlib.Path(found.origin).parent.glob("python/ops/*.so")):
        tf.load_op_library(str(library))
    return True
