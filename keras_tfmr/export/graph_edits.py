"""Edits to an exported graph, for speed; no answer changes."""

from keras_tfmr import compat


def prune(graph):
    """Drops the nodes of each function that nothing needs, and all but one of equal constants.

    TensorFlow drops them too, each time that a server prepares a signature. They are about two of
    five nodes.

    Args:
        graph: A `GraphDef`, which is changed.
    """
    for function in graph.library.function:
        _drop_gradients(function)
        _share_constants(function)
        _drop_unused(function)


def _drop_gradients(function):
    """Takes away the names of gradients that were not saved, of which loaders would warn."""
    for node in function.node_def:
        name = node.attr.get("_gradient_op_type")
        if name is not None and name.s.startswith(b"CustomGradient-"):
            del node.attr["_gradient_op_type"]


def _share_constants(function):
    firsts, shared = {}, {}
    for node in function.node_def:
        if node.op == "Const" and not node.input:
            key = node.device, node.attr["value"].SerializeToString()
            shared[node.name] = firsts.setdefault(key, node.name)

    def renamed(tensor):  # "name:output:0", and "^name" for a control input
        name = _node(tensor)
        return tensor.replace(name, shared.get(name, name), 1)

    for node in function.node_def:
        node.input[:] = map(renamed, node.input)
    for name, tensor in function.ret.items():
        function.ret[name] = renamed(tensor)


def _drop_unused(function):
    nodes = {node.name: node for node in function.node_def}
    used, waiting = set(), [*map(_node, function.ret.values()), *function.control_ret.values()]
    while waiting:
        name = waiting.pop()
        if name in nodes and name not in used:  # otherwise it is an argument, or known
            used.add(name)
            waiting += map(_node, nodes[name].input)
    kept = [node for node in function.node_def if node.name in used]
    del function.node_def[:]
    function.node_def.extend(kept)


def _node(tensor):
    return tensor.removeprefix("^").split(":")[0]


def keep_loops(graph):
    """Makes TensorFlow run loops and conditions as they are, as single operations.

    By default it lowers them to `Switch`, `Merge` and `NextIteration`, which cost a fifth to a
    third of a decoding step with few sentences.

    Args:
        graph: A `GraphDef`, which is changed.
    """
    for function in graph.library.function:
        for node in function.node_def:
            if compat.LOWERED in node.attr:
                node.attr[compat.LOWERED].b = False
