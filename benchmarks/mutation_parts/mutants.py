"""Mutants of a Python file: its syntax tree with one thing changed."""

import ast
import collections
import importlib.abc
import importlib.util
import linecache
import sys
from pathlib import Path
from typing import NamedTuple

SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


class Mutant(NamedTuple):
    """One change to one file.

    Args:
        root: folder of the file.
        file: path below it.
        place: number of the changed node, in the order of `ast.walk`.
        change: number of the change, of those that the node has.
        key: file, function and change in words.
    """

    root: Path
    file: str
    place: int
    change: int
    key: str

    def source(self):
        """The changed file's text."""
        tree = ast.parse((self.root / self.file).read_text())
        node = next(node for number, node in enumerate(ast.walk(tree)) if number == self.place)
        changes(node)[self.change]()
        return ast.unparse(ast.fix_missing_locations(tree))

    def install(self, folder):
        """From now on the file's import gives the mutant, kept in `folder` for who reads it."""
        path = Path(folder) / "mutant.py"
        path.write_text(self.source())
        linecache.checkcache()
        module = ".".join(Path(self.file).with_suffix("").parts)
        sys.meta_path.insert(0, _Finder(module, path))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module, path):
        self.module, self.path = module, path

    def find_spec(self, name, path=None, target=None):
        if name != self.module:
            return None
        return importlib.util.spec_from_file_location(name, self.path)


def of_file(root, file):
    """All mutants of a file, in the order of its syntax tree."""
    text = (Path(root) / file).read_text()
    tree, keys, found = ast.parse(text), collections.Counter(), []
    functions, passed_over = _functions(tree), _passed_over(tree)
    for place, node in enumerate(ast.walk(tree)):
        if id(node) in passed_over:
            continue
        before = _text(node)
        for number, _ in enumerate(changes(node)):
            twin = next(one for i, one in enumerate(ast.walk(ast.parse(text))) if i == place)
            changes(twin)[number]()
            key = f"{file} {functions.get(id(node), 'module')}: `{before}` → `{_text(twin)}`"
            keys[key] += 1
            again = f" ({keys[key]})" if keys[key] > 1 else ""
            found.append(Mutant(Path(root), file, place, number, key + again))
    return found


def changes(node):
    """The changes that fit a node, each as a function without arguments that makes it."""
    if isinstance(node, ast.Compare):
        return [
            _setting(node.ops, i, SWAPS[type(op)]())
            for i, op in enumerate(node.ops)
            if type(op) in SWAPS
        ]
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign):
        swap = SWAPS.get(type(node.op))
        return [_assigning(node, "op", swap())] if swap else []
    if isinstance(node, ast.Constant):
        return [_assigning(node, "value", other) for other in _other_values(node.value)]
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        if isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            return []  # it is changed itself
        return [_assigning(node, "test", ast.UnaryOp(ast.Not(), node.test))]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert | ast.USub):
        return [_assigning(node, "operand", ast.UnaryOp(node.op, node.operand))]
    if isinstance(node, ast.Return) and node.value is not None:
        is_none = isinstance(node.value, ast.Constant) and node.value.value is None
        return [] if is_none else [_assigning(node, "value", ast.Constant(None))]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        return [_assigning(node, "value", ast.Constant(None))]
    if isinstance(node, ast.Call):
        named = [i for i, keyword in enumerate(node.keywords) if keyword.arg]
        return [_deleting(node.keywords, i) for i in named]
    if isinstance(node, ast.Slice):
        return [_assigning(node, side, None) for side in ("lower", "upper") if getattr(node, side)]
    return []


def _other_values(value):
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float) and abs(value) < 1000:
        return [value + 1]
    return []


def _setting(items, i, value):
    return lambda: items.__setitem__(i, value)


def _assigning(node, name, value):
    return lambda: setattr(node, name, value)


def _deleting(items, i):
    return lambda: items.__delitem__(i)


def _functions(tree):
    """{id of a node: name of the innermost function or class that holds it}."""
    found = {}
    for outer in ast.walk(tree):  # from the outermost to the innermost
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.update((id(node), outer.name) for node in ast.walk(outer))
    return found


def _passed_over(tree):
    """Ids of nodes that decide nothing: messages, annotations, decorators and names of files."""
    heads = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert):
            heads.append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            heads += node.decorator_list
            heads.append(getattr(node, "returns", None))
        elif isinstance(node, ast.arg | ast.AnnAssign):
            heads.append(node.annotation)
        elif isinstance(node, ast.Call) and _name(node.func) in ("invalid", "unavailable", "print"):
            heads.append(node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
            heads.append(node.operand)  # -1 becomes 1 and not -2 too
    return {id(node) for head in heads if head is not None for node in ast.walk(head)}


def _name(function):
    return getattr(function, "id", getattr(function, "attr", ""))


def _text(node):
    """The node in one line; only the head of a node that has a body."""
    text = ast.unparse(ast.fix_missing_locations(node)).split("\n")[0].replace("|", "\\|")
    return text if len(text) <= 90 else text[:87] + "..."
