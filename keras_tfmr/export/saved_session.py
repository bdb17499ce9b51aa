"""A SavedModel run as TensorFlow Serving runs it: a session, the tag `serve`, tensors by name."""

import contextlib
import ctypes
import importlib.util
import pathlib

SERVE_TAGS = ("serve",)
INIT_SIGNATURE = "__saved_model_init_op"


class SavedSession:
    """A SavedModel loaded into a session of its own.

    Unlike `tf.saved_model.load`, this is the server's path: the graph is restored, not re-traced,
    variables are found by their handles, and what is fed is not held against the signature's static
    shape.

    Args:
        path: the folder that holds `saved_model.pb`.

    Raises:
        Whatever TensorFlow raises when the graph or its variables cannot be loaded.
    """

    def __init__(self, path):
        import tensorflow as tf

        _register_text_ops()
        graph = tf.Graph()
        # No soft placement: the server has none, so a pinned node fails here as it does there.
        self.session = tf.compat.v1.Session(graph=graph, config=tf.compat.v1.ConfigProto())
        try:
            with graph.as_default():
                self.meta_graph = tf.compat.v1.saved_model.load(
                    self.session, list(SERVE_TAGS), str(path)
                )
        except BaseException:
            self.session.close()
            raise
        self.signatures = {
            name: signature
            for name, signature in sorted(self.meta_graph.signature_def.items())
            if name != INIT_SIGNATURE
        }
        self._callables = {}

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
        if signature not in self._callables:
            self._callables[signature] = self._callable(definition, outputs)
        values = self._callables[signature](*(inputs[name] for name in sorted(definition.inputs)))
        return dict(zip(outputs, values, strict=True))

    def _callable(self, definition, outputs):
        from tensorflow.core.protobuf import config_pb2

        options = config_pb2.CallableOptions(
            feed=[definition.inputs[name].name for name in sorted(definition.inputs)],
            fetch=[definition.outputs[name].name for name in outputs],
        )
        # Session.run would check static shapes, which the C++ server does not.
        return self.session._make_callable_from_options(options)

    def close(self):
        self.session.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def native_load_error(path):
    """What the server's C++ loader says of a SavedModel: an error, or None if it loads.

    The loader is reached through TensorFlow's C interface. Where the installed TensorFlow does not
    export it there is nothing to ask, and the answer is None.
    """
    library = _c_library()
    if library is None:
        return None
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
    """Inside, XLA refuses to compile, as it does in a server that was not started for it."""
    # tensorflow::DisableXlaCompilation(), which the server's main() calls, and its opposite.
    _call("_ZN10tensorflow21DisableXlaCompilationEv")
    try:
        yield
    finally:
        _call("_ZN10tensorflow20EnableXlaCompilationEv")


def _call(symbol):
    function = getattr(_library(), symbol, None)
    if function is not None:
        function()


def _library():
    import tensorflow as tf

    found = sorted(pathlib.Path(tf.sysconfig.get_lib()).glob("libtensorflow_cc.*"))
    return ctypes.CDLL(str(found[0])) if found else None


def _c_library():
    _register_text_ops()
    library = _library()
    if library is None:
        return None
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
            return None
        function.restype, function.argtypes = result, arguments
    return library


def _register_text_ops():
    """Loads TensorFlow Text's ops, if installed, but not its Python side, which imports Keras."""
    import tensorflow as tf

    found = importlib.util.find_spec("tensorflow_text")
    if found is not None:
        for library in sorted(pathlib.Path(found.origin).parent.glob("python/ops/*.so")):
            tf.load_op_library(str(library))
