"""The operations of a stock TensorFlow Serving 2.20: those of TensorFlow core and TensorFlow Text.

They are read from the registry of the installed TensorFlow, without those that are newer than the
server, those whose kernels need Python, and XLA, which the server does not enable.
"""

from keras_tfmr import compat

# Registered in TensorFlow 2.21, unknown to 2.20.
_YOUNGER = frozenset({"DecodeJxl", "_CopyFromGpuToHost", "_CopyFromHostToGpu"})
# Attributes that 2.21 added to older operations. SavedModels omit them if they have their default.
_YOUNGER_ATTRIBUTES = {"TensorListGetItem": frozenset({"Tshape"})}
# The server has these, but only a Python process has kernels for them.
_OF_PYTHON = frozenset({"PyFunc", "EagerPyFunc", "PyFuncStateless"})


def problems_of(graph):
    """Why the server would refuse a `GraphDef`: sentences, one for each kind of operation.

    TensorFlow Text's operations must have been loaded, and none of others.
    """
    served, problems = compat.registered_ops() - _YOUNGER - _OF_PYTHON, {}
    parts = [("the main graph", graph.node)]
    parts += [(part.signature.name, part.node_def) for part in graph.library.function]
    functions = {name for name, _ in parts}
    for where, nodes in parts:
        for node in nodes:
            # In old graphs, the name of an operation can be that of a function.
            if node.op not in functions and (problem := _problem(node, served)):
                problems.setdefault(problem, f"{problem} (node {node.name} in {where})")
    for part in graph.library.function:
        if part.attr[compat.MUST_COMPILE].b:
            problems["XLA"] = f"{part.signature.name} needs XLA, which the server does not enable"
    return list(problems.values())


def _problem(node, served):
    if node.op in _OF_PYTHON:
        return f"{node.op} calls Python, which the server does not have"
    if node.op not in served:
        return f"{node.op} is not an operation of TensorFlow Serving 2.20"
    if node.op.startswith("Xla"):
        return f"{node.op} needs XLA, which the server does not enable"
    younger = _YOUNGER_ATTRIBUTES.get(node.op, frozenset()) & set(node.attr)
    return f"the server does not know {node.op}'s {', '.join(sorted(younger))}" if younger else None
