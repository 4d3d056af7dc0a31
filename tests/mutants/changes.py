"""Small changes of Python source, each of one expression: comparisons, arithmetic, signs, indices, seeds, logic."""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOMS = (
    "attacks",
    "fedleak/client/engine",
    "fedleak/defenses",
    "fedleak/evaluation",
    "guard/fedleak_guard",
    "recorder/fedleak_recorder",
    "fedleak/recordings",
)
"""Folders whose source is changed."""
_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_NAMES = {
    **{"min": "max", "max": "min", "amin": "amax", "amax": "amin", "argmin": "argmax", "argmax": "argmin"},
    **{"any": "all", "all": "any", "sum": "mean", "mean": "sum", "floor": "ceil", "ceil": "floor"},
}


@dataclass(frozen=True)
class Change:
    """A change of one expression.

    Attributes:
        file: the source file, relative to the checkout.
        function: first line of the function around it, of its decorators if it has any.
        line: line of the expression.
        column: its first column.
        kind: kind of change, such as ``comparison``.
        before: the expression.
        after: the expression after the change.
        span: first and last byte of the expression in the file.
    """

    file: str
    function: int
    line: int
    column: int
    kind: str
    before: str
    after: str
    span: tuple[int, int]

    def applied(self, source: bytes) -> bytes:
        """The source with the change."""
        first, last = self.span
        return source[:first] + self.after.encode() + source[last:]


def changes_of(root: Path, file: str) -> list[Change]:
    """Every change of one file inside a function, by position."""
    source = (root / file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for function, node in _Expressions(ast.parse(source)).found:
        end = starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)
        span = starts[node.lineno - 1] + node.col_offset, end
        before = source[slice(*span)].decode()
        for kind, changed in _changed(node):
            after = ast.unparse(changed)
            if after != ast.unparse(node):
                after = f"({after})" if "\n" in before or not isinstance(node, ast.Constant) else after
                found.append(Change(file, function, node.lineno, node.col_offset, kind, before, after, span))
    return found


def sample(root: Path, count: int, seed: int) -> list[Change]:
    """Changes drawn at random: a file by its number of changes, so that each change of `ROOMS` is equally likely."""
    files = sorted(path for room in ROOMS for path in (root / room).rglob("*.py"))
    every = [change for path in files for change in changes_of(root, str(path.relative_to(root)))]
    return random.Random(seed).sample(every, min(count, len(every)))


class _Expressions(ast.NodeVisitor):
    """Every expression that a function evaluates, with that function's first line; no annotations and defaults."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions: list[int] = []
        self.found: list[tuple[int, ast.expr]] = []
        self.visit(tree)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.functions.append(min([node.lineno, *(one.lineno for one in node.decorator_list)]))
        for statement in node.body:
            self.visit(statement)
        self.functions.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert):  # messages
            return
        if isinstance(node, ast.expr) and self.functions:
            self.found.append((self.functions[-1], node))
        super().generic_visit(node)


def _changed(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Compare(left, [operator], right) if type(operator) in _COMPARED:
            yield "comparison", ast.Compare(left, [_COMPARED[type(operator)]()], right)
        case ast.BinOp(left, operator, right) if type(operator) in _COMPUTED:
            yield "arithmetic", ast.BinOp(left, _COMPUTED[type(operator)](), right)
        case ast.UnaryOp(operator, operand) if not isinstance(operand, ast.Constant):
            yield "sign" if isinstance(operator, ast.USub) else "logic", operand
        case ast.BoolOp(operator, values):
            yield "logic", ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.Constant(value):
            yield from _other_values(value)
        case ast.Call():
            yield from _other_calls(node)


def _other_values(value: object) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(value, bool):
        yield "logic", ast.Constant(not value)
    elif isinstance(value, int):
        yield "index or number", ast.Constant(value + 1)
    elif isinstance(value, float) and value:
        yield "index or number", ast.Constant(value * 2)


def _other_calls(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    match node.func:
        case ast.Name("generator_for") if len(node.args) > 1:
            yield "seed", ast.Call(node.func, node.args[:-1], node.keywords)
        case ast.Attribute(value, name, context) if name in _NAMES:
            yield "formula", ast.Call(ast.Attribute(value, _NAMES[name], context), node.args, node.keywords)
        case ast.Name(name) if name in ("min", "max", "any", "all"):
            yield "formula", ast.Call(ast.Name(_NAMES[name]), node.args, node.keywords)
