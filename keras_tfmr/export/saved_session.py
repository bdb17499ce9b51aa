"""Runs a SavedModel as TensorFlow Serving does: in a session, by its tags and tensor names."""

import importlib.util
import pathlib

import numpy as np
import tensorflow as tf

from keras_tfmr import compat


class SavedSession:
    """A SavedModel loaded into its own session.

    Unlike `tf.saved_model.load`, this loads a SavedModel as the server does: the graph is restored,
    not traced again, variables are found by their handles, and inputs are not checked against the
    static shapes of the signature.

    Args:
        path: The folder that holds `saved_model.pb`.
        config: A `tf.compat.v1.ConfigProto`; None for TensorFlow's defaults.

    Attributes:
        signatures: A dict from name to `SignatureDef`, without the initialiser.
    """

    def __init__(self, path, config=None):
        register_text_ops()
        graph = tf.Graph()
        # Without soft placement, as in the server, so that pinned nodes fail here too.
        self.session = tf.compat.v1.Session(graph=graph, config=config)
        with graph.as_default():
            load = tf.compat.v1.saved_model.load
            self.meta_graph = load(self.session, ["serve"], str(path))
        graph.finalize()
        self.signatures = dict(sorted(self.meta_graph.signature_def.items()))
        self.signatures.pop("__saved_model_init_op", None)

    def run(self, signature, inputs, outputs=None, timeout=None):
        """Runs one signature: {name of an output: array}, strings as bytes in an object array.

        Args:
            signature: Its name.
            inputs: A dict from input names to arrays.
            outputs: The names of outputs; None for all.
            timeout: Seconds that it may take, or None.
        """
        definition = self.signatures[signature]
        names = sorted(definition.outputs) if outputs is None else outputs
        feeds = {info.name: np.asarray(inputs[name]) for name, info in definition.inputs.items()}
        fetches = [definition.outputs[name].name for name in names]
        values = compat.run_unchecked(self.session, feeds, fetches, timeout)
        # A single string comes as `bytes`, from which NumPy would strip zero bytes at the end.
        values = [np.array(v, object) if isinstance(v, bytes) else np.asarray(v) for v in values]
        return dict(zip(names, values, strict=True))

    def close(self):
        """Frees the session and stops what still runs in it."""
        self.session.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def first_lines(error):
    """The first two lines of an error's message, without the trace that TensorFlow appends."""
    return " ".join(str(error).strip().splitlines()[:2])


def register_text_ops():
    """Loads TensorFlow Text's ops, if it is installed, but not its modules, which import Keras."""
    if spec := importlib.util.find_spec("tensorflow_text"):
        with compat.quiet_libraries():
            for library in sorted(pathlib.Path(spec.origin).parent.glob("python/ops/*.so")):
                tf.load_op_library(str(library))
