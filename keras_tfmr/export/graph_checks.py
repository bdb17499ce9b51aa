"""Checks of a SavedModel that only read it: its ops, its devices, its variables.

A stock TensorFlow Serving 2.20 links all ops of TensorFlow core and of TensorFlow Text, and no
others. The core ops are read from the registry of the installed TensorFlow, without those that are
newer than the server and those whose kernels need Python. TensorFlow Text's are listed here.
"""

import numpy as np

from keras_tfmr import compat
from keras_tfmr.export import saved_session

# Registered in TensorFlow 2.21, unknown to 2.20.
_YOUNGER_THAN_SERVER = frozenset({"DecodeJxl", "_CopyFromGpuToHost", "_CopyFromHostToGpu"})

# The server has these ops, but only a Python process has kernels for them.
PYTHON_OPS = frozenset({"PyFunc", "EagerPyFunc", "PyFuncStateless"})

# Attributes that 2.21 added to older ops. SavedModels omit them if they have their default value.
_YOUNGER_ATTRIBUTES = {"TensorListGetItem": frozenset({"Tshape"})}

TEXT_OPS = frozenset(
    """
    CaseFoldUTF8 ConstrainedSequence FastBertNormalize FastWordpieceTokenizeWithOffsets
    FindSourceOffsets MaxSpanningTree NormalizeUTF8 NormalizeUTF8WithOffsetsMap PhraseTokenize
    RegexSplitWithOffsets RougeL SentenceFragments SentenceFragmentsV2 SentencepieceDetokenizeOp
    SentencepieceIdToStringOp SentencepieceOp SentencepieceStringToIdOp SentencepieceTokenizeOp
    SentencepieceTokenizeWithOffsetsOp SentencepieceVocabSizeOp SplitMergeTokenizeWithOffsets
    TokenizerFromLogits UnicodeScriptTokenizeWithOffsets WhitespaceTokenizeWithOffsets
    WordpieceTokenizeWithOffsets TFText>BoiseTagsToOffsets TFText>ByteSplitByOffsets
    TFText>ByteSplitWithOffsets TFText>FastSentencepieceDetokenize TFText>FastSentencepieceTokenize
    TFText>FastWordpieceDetokenize TFText>NgramsStringJoin TFText>OffsetsToBoiseTags
    TFText>PhraseDetokenize TFText>RoundRobinGenerateMasks TFText>RoundRobinTrim TFText>Utf8Binarize
    TFText>WhitespaceTokenizeWithOffsetsV2
    """.split()  # noqa: SIM905
)

_VARIABLE_OPS = frozenset({"VarHandleOp", "VariableV2", "Variable"})
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def read_meta_graph(path, report):
    """The MetaGraphDef tagged `serve`, or None and a problem in the report."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    data = (path / "saved_model.pb").read_bytes()
    try:
        saved_model = saved_model_pb2.SavedModel.FromString(data)
    except DecodeError as error:
        report.problems.append(f"saved_model.pb is not a SavedModel: {error}")
        return None
    report.facts["graph bytes"] = len(data)
    tags = [sorted(graph.meta_info_def.tags) for graph in saved_model.meta_graphs]
    for graph, tagged in zip(saved_model.meta_graphs, tags, strict=True):
        if tagged == sorted(saved_session.SERVE_TAGS):
            return graph
    report.problems.append(f"the server loads the tags {{serve}}, but the graphs have {tags}")
    return None


def _nodes(meta_graph):
    # (name of the function or "", node)
    for node in meta_graph.graph_def.node:
        yield "", node
    for function in meta_graph.graph_def.library.function:
        for node in function.node_def:
            yield function.signature.name, node


def core_ops():
    """Names of the ops of the installed TensorFlow that TensorFlow Serving 2.20 has, too.

    Call it in a process that has not loaded other op libraries, because the registry does not say
    where an op comes from. TensorFlow Text's ops are left out, whether they are loaded or not.
    """
    return frozenset(compat.registered_ops() - TEXT_OPS - _YOUNGER_THAN_SERVER - PYTHON_OPS)


def op_problem(node, served):
    """Why the server would refuse a NodeDef, as a sentence, or None if it would not.

    Args:
        node: A `NodeDef`.
        served: The names of the server's ops, a set.
    """
    if node.op in PYTHON_OPS:
        return f"{node.op} calls Python, which the server does not have"
    if node.op not in served:
        return f"{node.op} is not an op of TensorFlow Serving 2.20"
    younger = _YOUNGER_ATTRIBUTES.get(node.op, frozenset()) & set(node.attr)
    if younger:
        return (
            f"{node.op} has attributes that the server does not know: {', '.join(sorted(younger))}"
        )
    return None


def check_ops(meta_graph, report):
    """Checks that the server has every op, and that none needs XLA, which it does not enable."""
    served = core_ops() | TEXT_OPS
    functions = {function.signature.name for function in meta_graph.graph_def.library.function}
    problems, ops = {}, set()
    for function, node in _nodes(meta_graph):
        ops.add(node.op)
        # In old graphs, the name of an op can be that of a function.
        if node.op in functions:
            continue
        problem = op_problem(node, served)
        if problem:
            problems.setdefault(problem, f"{node.name} in {function or 'the main graph'}")
    report.problems += [f"{problem} (node {where})" for problem, where in problems.items()]
    report.facts["kinds of op"] = len(ops)
    compiled = any(
        compat.MUST_COMPILE in function.attr and function.attr[compat.MUST_COMPILE].b
        for function in meta_graph.graph_def.library.function
    )
    # Ops such as XlaDot need XLA outside compiled functions, too.
    if compiled or any(op.startswith("Xla") for op in ops):
        report.problems.append(
            "it needs XLA, which the server refuses unless it is started with "
            "--xla_cpu_compilation_enabled"
        )


def check_devices(meta_graph, report):
    """Checks that no node is pinned to a device other than the server's own CPU."""
    import tensorflow as tf

    for function, node in _nodes(meta_graph):
        device = tf.DeviceSpec.from_string(node.device)
        if device.job not in (None, "localhost") or device.device_type not in (None, "CPU"):
            where = function or "the main graph"
            report.problems.append(f"node {node.name} in {where} is pinned to {node.device}")
            return


def check_variables(path, meta_graph, report):
    """Checks that the checkpoint holds exactly the variables that signatures read, each once."""
    import tensorflow as tf

    try:
        stored = _stored_variables(path)
    except tf.errors.OpError as error:
        report.problems.append(f"its variables cannot be read: {error}")
        return
    read = _read_variables(meta_graph)
    stored_bytes = sum(_bytes(shape, dtype) for shape, dtype in stored.values())
    report.facts["variables"], report.facts["variable bytes"] = len(stored), stored_bytes
    if any(shape is None for shape, _ in read.values()):
        report.notes.append("sizes were not compared, because a variable has no fixed shape")
        return
    read_bytes = sum(_bytes(shape, dtype) for shape, dtype in read.values())
    if stored_bytes != read_bytes:
        report.problems.append(
            f"the checkpoint holds {stored_bytes} bytes in {len(stored)} variables, but the "
            f"signatures read {read_bytes} bytes in {len(read)}: it may hold weights twice, an "
            "optimizer or unused variables"
        )


def _stored_variables(path):
    # {checkpoint key: (shape, NumPy dtype)}
    import tensorflow as tf

    prefix = path / "variables" / "variables"
    if not prefix.with_name("variables.index").is_file():
        return {}
    reader = tf.train.load_checkpoint(str(prefix))
    types = reader.get_variable_to_dtype_map()
    return {
        key: (tuple(shape), types[key].as_numpy_dtype)
        for key, shape in reader.get_variable_to_shape_map().items()
        # State that is not a variable, such as a hash table's keys, has another attribute name.
        if key != _OBJECT_GRAPH and key.partition(".ATTRIBUTES/")[2] in ("", "VARIABLE_VALUE")
    }


def _read_variables(meta_graph):
    # {node name: (shape or None, NumPy dtype)} of the variables any signature's outputs depend on
    import tensorflow as tf

    nodes = {node.name: node for node in meta_graph.graph_def.node}
    waiting = [
        output.name.partition(":")[0]
        for name, signature in meta_graph.signature_def.items()
        if name != saved_session.INIT_SIGNATURE
        for output in signature.outputs.values()
    ]
    seen, variables = set(), {}
    while waiting:
        name = waiting.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        node = nodes[name]
        if node.op in _VARIABLE_OPS:
            shape = tf.TensorShape(node.attr["shape"].shape)
            dtype = tf.as_dtype(node.attr["dtype"].type).as_numpy_dtype
            variables[name] = (tuple(shape) if shape.is_fully_defined() else None, dtype)
        waiting += [source.lstrip("^").partition(":")[0] for source in node.input]
    return variables


def _bytes(shape, dtype):
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
