"""The private API of other packages that `keras_tfmr` uses, and what would replace it.

- Keras: the mask that a tensor carries, the operation that made it, the calls of a graph, the
  layers inside a layer, and its own weights.
- TensorFlow: two attributes of graphs, the list of all ops, runs of a session without Python's
  checks, the options of function calls, and the op that multiplies integers.
- tensorflow-text: the resource that holds a SentencePiece model.

Each function says why it needs it. `usable_cores`, `take`, `import_tensorflow` and `outside_traces`
use public API alone, which differs between versions of Python and between backends.

Tried with Keras 3.15.1, TensorFlow 2.20 and 2.21, tensorflow-text 2.20.0 and 2.21.1.
"""

import contextlib
import functools
import hashlib
import os
import sys

# Attributes of a GraphDef without a public name: of a loop's node, whether it is taken apart, and
# of a function, whether only XLA runs it.
LOWERED = "_lower_using_switch_merge"
MUST_COMPILE = "_XlaMustCompile"

QUANTIZED_MATMUL = "_QuantizedMatMul"


def usable_cores():
    """Number of processor cores that this process may use.

    `os.process_cpu_count` of Python 3.13 replaces this. `os.sched_getaffinity` is Linux's only.

    >>> 1 <= usable_cores() <= os.cpu_count()
    True
    """
    if hasattr(os, "process_cpu_count"):
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def import_tensorflow():
    """Imports TensorFlow and tensorflow-text for a command, which then prints nothing but its own.

    Sets TF_CPP_MIN_LOG_LEVEL to 3, if it is not set. Their libraries heed it once they are loaded,
    but not before: see `quiet_libraries`.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with quiet_libraries():
        import tensorflow_text  # noqa: F401


@contextlib.contextmanager
def quiet_libraries():
    """A context in which nothing is written to standard error, unless TF_CPP_MIN_LOG_LEVEL is 0.

    Libraries in C++ write there what they find while they are loaded (TensorFlow, that there is no
    GPU), and SentencePiece, that a model normalises nothing; a level that holds from the start
    would replace this. An exception is raised as ever.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0":
        yield
        return
    sys.stderr.flush()
    own, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)
        os.close(nothing)


def keras_mask(x):
    """The mask that a layer gave its output `x`, or None.

    Private: `keras.src.backend.get_keras_mask`. A public one would replace this. Keras fills in a
    layer's `mask` argument only if `x` is the only tensor among the arguments. The attribute
    `_keras_mask` is no substitute: what JAX traces takes no attributes, so Keras keeps those masks
    in a table of its own.
    """
    from keras.src.backend import get_keras_mask

    return get_keras_mask(x)


def flatten_layers(layer):
    """A layer and all layers inside it.

    `keras.Model.layers` lists the direct ones of a model only; a public, recursive one would
    replace this.
    """
    return layer._flatten_layers()


def layers_inside(layer):
    """The layers directly inside a layer.

    Private: `_flatten_layers`. `keras.Model.layers` lists those of a model only.
    """
    return layer._flatten_layers(include_self=False, recursive=False)


def weights_made_trainable(layer):
    """A layer's own weights, except those that are never trained, such as moving means.

    Private: `_trainable_variables`. The public `trainable_variables` leaves out frozen ones.
    """
    return layer._trainable_variables


def operation_name(operation):
    """The name of the function of `keras.ops` that an operation of a graph is, such as "Add".

    The classes of these operations are private, and named as the functions; public classes would
    replace this. "" for a layer.
    """
    import keras

    return "" if isinstance(operation, keras.layers.Layer) else type(operation).__name__


def nodes_of(model):
    """The calls of a functional model, in their order: operation, arguments and outputs of each.

    Private: `_nodes_by_depth`. A public list would replace this; `keras.models.clone_model` with a
    `call_function` calls every layer again, which takes seconds.
    """
    by_depth = model._nodes_by_depth
    nodes = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]
    return [(node.operation, node.arguments, node.outputs) for node in nodes if not node.is_input]


def made_by(x):
    """The operation that made a symbolic tensor, and the list of its arguments.

    Private: `_keras_history` and `_inbound_nodes`. A public way from a tensor to its operation
    would replace this; `keras.Model.operations` has no arguments.
    """
    operation, index, _ = x._keras_history
    arguments = operation._inbound_nodes[index].arguments
    return operation, [*arguments.args, *arguments.kwargs.values()]


@contextlib.contextmanager
def outside_traces():
    """A scope that computes at once, inside a `tf.function` or `jax.jit` too.

    Variables have the values that they hold, not those of a trace.
    """
    import keras

    with contextlib.ExitStack() as scopes:
        scopes.enter_context(keras.StatelessScope())
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            scopes.enter_context(tf.init_scope())
        if keras.backend.backend() == "jax":
            import jax

            scopes.enter_context(jax.ensure_compile_time_eval())
        yield


def forget_sizes(x, shape):
    """`x`, of whose static shape TensorFlow only knows what `shape` has.

    A loop of TensorFlow keeps the shapes that it begins with. `ops.while_loop` has no
    `shape_invariants`, which would replace this.
    """
    import keras

    if keras.backend.backend() != "tensorflow" or tuple(x.shape) == tuple(shape):
        return x
    import tensorflow as tf

    return tf.raw_ops.PlaceholderWithDefault(input=x, shape=shape)


def is_traced_or_stateless():
    """Whether TensorFlow is tracing a graph, or a scope gives variables other values.

    Private: `in_stateless_scope`. A public one, or `keras.StatelessScope.current`, would replace
    this.
    """
    import tensorflow as tf
    from keras.src.backend.common.stateless_scope import in_stateless_scope

    return not tf.executing_eagerly() or in_stateless_scope()


def xla_errors():
    """The errors of TensorFlow by which XLA says that it cannot compile a graph."""
    import tensorflow as tf

    errors = tf.errors
    return errors.InvalidArgumentError, errors.UnimplementedError, errors.InternalError


def take(x, indices):
    """`ops.take(x, indices, axis=0)`, for indices that are not negative.

    On TensorFlow, `ops.take` lets negative indices count from the end, which adds five operations
    to each of the dozen that a step of a search has. A `take` that can leave it would replace this.

    >>> import numpy as np
    >>> np.array(take(np.array([5, 6, 7]), np.array([2, 0]))).tolist()
    [7, 5]
    """
    import keras

    if keras.backend.backend() != "tensorflow":
        return keras.ops.take(x, indices, axis=0)
    import tensorflow as tf

    return tf.gather(x, indices)


def any_rows(x):
    """`x` `[rows, ...]`, for a loop that changes the number of rows; scalars as they are."""
    return forget_sizes(x, (None, *x.shape[1:])) if len(x.shape) else x


def sentencepiece_ops(model_bytes, out_type, name):
    """A `tf_text.SentencepieceTokenizer` that outlives TensorFlow's cache of ops.

    Private: `_SentencepieceModelResource`, `_model_resource`. The public class creates its model
    without a name, so that it belongs to the op that made it, and is lost when TensorFlow clears
    its cache of ops, as `keras.utils.set_random_seed` makes it do. A public `shared_name` argument
    of `tf_text.SentencepieceTokenizer` would replace this.
    """
    import tensorflow_text as tf_text

    with quiet_libraries():
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


def run_unchecked(session, feeds, fetches, timeout=None):
    """Runs the graph of a session as TensorFlow Serving does, without Python's checks of shapes.

    Private: `_call_tf_sessionrun`, `_as_tf_output`, `pywrap_tf_session`. The public `Session.run`
    refuses inputs that do not fit a signature's shapes, and the public callables of a session have
    no time limit of a call.

    Args:
        session: A `tf.compat.v1.Session`.
        feeds: {name of a tensor: array}.
        fetches: Names of tensors.
        timeout: Seconds, or None.

    Returns:
        A list of the tensors' values.
    """
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.client import pywrap_tf_session

    def output(name):
        return session.graph.get_tensor_by_name(name)._as_tf_output()

    milliseconds = 0 if timeout is None else max(1, int(timeout * 1000))
    content = config_pb2.RunOptions(timeout_in_ms=milliseconds).SerializeToString()
    options = pywrap_tf_session.TF_NewBufferFromString(content)
    try:
        arrays = {output(name): array for name, array in feeds.items()}
        return session._call_tf_sessionrun(options, arrays, [*map(output, fetches)], [], None)
    finally:
        pywrap_tf_session.TF_DeleteBuffer(options)


@contextlib.contextmanager
def unoptimized_functions():
    """A context in which this thread runs graph functions as they were traced.

    Private: `context.function_call_options`. `tf.config.optimizer` would change the functions that
    other threads call for the first time meanwhile, for good; an option of a call would replace
    this.
    """
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.eager import context

    eager = context.context()
    before = eager.function_call_options
    config = config_pb2.ConfigProto.FromString(before.config_proto_serialized)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    eager.function_call_options = context.FunctionCallOptions(before.executor_type, config)
    try:
        yield
    finally:
        eager.function_call_options = before


def quantized_matmul(x, kernel, offset, greatest, unit_range, relu=False, constant=True):
    """The product of integers and the offset, as floats, in a graph: float32 `[rows, units]`.

    Private: the op `_QuantizedMatMul`, which exists in graphs only. `tf.raw_ops` lists no op whose
    name begins with `_`; a public one with a fused bias would replace this.

    Args:
        x: quint8 `[rows, width]`.
        kernel: qint8 `[units, width]`.
        offset: float32 `[units]`, added to each row.
        greatest: The value of the integer 255 of `x`; 0 has the value 0.
        unit_range: float32 `[units]`, the value of the integer 127 of each unit.
        relu: Whether to take 0 for what is negative.
        constant: Whether kernel and offset are the same at every run. The op then keeps them as
            they were at the first.
    """
    import tensorflow as tf

    quantized, real = [tf.quint8, tf.qint8], tf.float32
    inputs = [x, kernel, offset, tf.constant(0.0), greatest]
    inputs += [unit_range, unit_range]  # of both, the op takes the greater magnitude
    attributes = {
        "T1": tf.quint8, "T2": tf.qint8, "Tbias": real, "U": real, "Tout": real,
        "Tdevice_inputs": [*quantized, *[real] * 5], "Thost_inputs": [],
        "Tdevice_outputs": [real], "Thost_outputs": [],
        "fused_ops": [b"BiasAdd", *[b"Relu"] * relu, b"Dequantize"],
        "input_quant_mode": b"SCALED", "output_quant_mode": b"SCALED", "transpose_b": True,
    }  # fmt: skip
    attributes |= {"is_weight_const": constant, "is_bias_const": constant}
    attributes = {name: _attribute(value) for name, value in attributes.items()}
    graph = tf.compat.v1.get_default_graph()
    node = graph.create_op(QUANTIZED_MATMUL, inputs, [real], name="int8_product", attrs=attributes)
    return node.outputs[0]


def _attribute(value):
    """A node's attribute: a bool, a type, bytes, or a list of types or bytes."""
    import tensorflow as tf

    message = tf.compat.v1.AttrValue
    if isinstance(value, bool):
        return message(b=value)
    if isinstance(value, list):
        kind = "s" if value and isinstance(value[0], bytes) else "type"
        values = [item if kind == "s" else item.as_datatype_enum for item in value]
        return message(list=message.ListValue(**{kind: values}))
    return message(s=value) if isinstance(value, bytes) else message(type=value.as_datatype_enum)
