"""Runs a SavedModel as TensorFlow Serving does: in a session, by its tags and tensor names."""

import importlib.util
import pathlib

import numpy as np

from keras_tfmr import compat

SERVE_TAGS = ("serve",)
INIT_SIGNATURE = "__saved_model_init_op"


class SavedSession:
    """A SavedModel loaded into its own session.

    Unlike `tf.saved_model.load`, this loads a SavedModel as the server does: the graph is restored,
    not traced again, variables are found by their handles, and inputs are not checked against the
    static shapes of the signature.

    Args:
        path: The folder that holds `saved_model.pb`.

    Attributes:
        signatures: A dict from name to `SignatureDef`, without the initialiser.

    Raises:
        Whatever TensorFlow raises when the graph or its variables cannot be loaded.
    """

    def __init__(self, path):
        import tensorflow as tf

        register_text_ops()
        graph = tf.Graph()
        # Without soft placement, as in the server, so that pinned nodes fail here too.
        self.session = tf.compat.v1.Session(graph=graph)
        try:
            with graph.as_default():
                load = tf.compat.v1.saved_model.load
                self.meta_graph = load(self.session, list(SERVE_TAGS), str(path))
        except BaseException:
            self.session.close()
            raise
        graph.finalize()
        self.signatures = {
            name: signature
            for name, signature in sorted(self.meta_graph.signature_def.items())
            if name != INIT_SIGNATURE
        }
        self._callables = {}

    def run(self, signature, inputs):
        """Runs one signature.

        Args:
            signature: Its name.
            inputs: A dict from input names to arrays.

        Returns:
            A dict from output names to NumPy arrays; strings are bytes in an object array.

        Raises:
            tf.errors.OpError: If the run fails.
        """
        tensors = self.tensors(signature)
        # The default signature is prepared once with the one that it is, as in a server.
        if tensors not in self._callables:
            self._callables[tensors] = compat.unchecked_callable(self.session, *tensors)
        definition = self.signatures[signature]
        names, outputs = sorted(definition.inputs), sorted(definition.outputs)
        values = self._callables[tensors](*(np.asarray(inputs[name]) for name in names))
        # A single string comes as `bytes`, from which NumPy would strip zero bytes at the end.
        values = [np.array(v, object) if isinstance(v, bytes) else v for v in values]
        return dict(zip(outputs, values, strict=True))

    def tensors(self, signature):
        """The names of a signature's inputs and of its outputs in the graph, two tuples."""
        definition = self.signatures[signature]
        return tuple(
            tuple(infos[alias].name for alias in sorted(infos))
            for infos in (definition.inputs, definition.outputs)
        )

    def close(self):
        """Frees the session; no run may be in progress."""
        self._callables.clear()
        self.session.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def register_text_ops():
    """Loads TensorFlow Text's ops, but not its Python modules, which import Keras.

    Returns:
        Whether TensorFlow Text is installed.
    """
    import tensorflow as tf

    spec = importlib.util.find_spec("tensorflow_text")
    if spec is None:
        return False
    for library in sorted(pathlib.Path(spec.origin).parent.glob("python/ops/*.so")):
        tf.load_op_library(str(library))
    return True
