"""What an export changes in the graphs that TensorFlow writes, so that a server starts sooner.

A server prepares each signature at its first request, and goes through every function each time.
Nothing here changes an answer.
"""

import itertools

from tensorflow.core.protobuf import config_pb2


def shrink(graph):
    """Drops the nodes of each function that nothing needs, and all but one of equal constants.

    TensorFlow drops them too, at every start. They are about two of five nodes.

    Args:
        graph: A `GraphDef`, which is changed.
    """
    for function in graph.library.function:
        _share_constants(function)
        _drop_unused(function)


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
    used, found = set(), [*map(_node, function.ret.values()), *function.control_ret.values()]
    while found:
        name = found.pop()
        if name in nodes and name not in used:  # otherwise it is an argument, or known
            used.add(name)
            found += map(_node, nodes[name].input)
    kept = [node for node in function.node_def if node.name in used]
    del function.node_def[:]
    function.node_def.extend(kept)


def _node(tensor):
    return tensor.removeprefix("^").split(":")[0]


def leave_to_xla(graph):
    """Makes a server use the signatures that call compiled functions as they are.

    Otherwise TensorFlow's graph optimizer, Grappler, works for seconds at the first request to each
    of them, on functions that XLA optimizes itself and on the plain ones beside them, which gain at
    most a few percent.

    Args:
        graph: A `GraphDef`, which is changed.
    """
    functions = {function.signature.name: function for function in graph.library.function}

    def is_compiled(name):
        function = functions[name]
        if "_XlaMustCompile" in function.attr and function.attr["_XlaMustCompile"].b:
            return True
        return any(is_compiled(called) for node in function.node_def for called in _called(node))

    for name in filter(is_compiled, {called for node in graph.node for called in _called(node)}):
        # Grappler does not inline the first, and skips the second and everything that it calls.
        functions[name].attr["_noinline"].b = True
        functions[name].attr["_tf_data_function"].b = True
    # TensorFlow would run Grappler on each call that is not inlined.
    for node in itertools.chain(graph.node, *(each.node_def for each in functions.values())):
        if "config_proto" in node.attr:
            config = config_pb2.ConfigProto.FromString(node.attr["config_proto"].s)
            config.graph_options.rewrite_options.disable_meta_optimizer = True
            node.attr["config_proto"].s = config.SerializeToString()


def _called(node):
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        for function in value.list.func:
            yield function.name
