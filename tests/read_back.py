"""Search for code that reads back what the package wrote for people: reasons, and labels of attacks and curves."""

import ast
import re
from collections.abc import Sequence
from pathlib import Path

_TEXT = re.compile(r"^(?!by_|.*_(by|of)_)(.*_)?(attack|label|lacking|printed|problem|reason|sentence|unbounded|why)$")
"""Names of variables, fields and columns that hold one such text."""
_REASONS = {"did_not_run", "missing", "not_run", "not_under_defences", "unrelated"}
"""Names of what has reasons by the printed names of attacks."""
_BY_LABEL = {"candidates", "details", "labels", "pictures", "roc"}
"""Names of what has something else by label."""
_INSPECTS = {
    "contains",
    "count",
    "endswith",
    "extract",
    "find",
    "partition",
    "removeprefix",
    "removesuffix",
    "rfind",
    "rpartition",
    "rsplit",
    "split",
    "splitlines",
    "startswith",
}
"""Methods that ask something of a text or cut it."""
_KEEPS = {"lower", "lstrip", "replace", "rstrip", "strip", "title", "upper"}
"""Methods whose result is still that text."""


def read_back_in(path: Path) -> list[int]:
    """Numbers of the lines of a file that inspect a reason or a label."""
    return read_back(path.read_text(encoding="utf-8"))


def read_back(code: str) -> list[int]:
    """The same of some code."""
    tree = ast.parse(code)
    looped = _looped(tree)
    return sorted({node.lineno for node in ast.walk(tree) if isinstance(node, ast.expr) and _inspects(node, looped)})


def _inspects(node: ast.expr, looped: set[tuple[str, int]]) -> bool:
    """Whether an expression inspects such a text: by a method, by a regular expression, or by ``in``."""
    if isinstance(node, ast.Compare):
        contains = [isinstance(operator, ast.In | ast.NotIn) for operator in node.ops]
        return any(inside and _is_text(text, looped) for inside, text in zip(contains, node.comparators, strict=True))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if isinstance(node.func.value, ast.Name) and node.func.value.id == "re":
        return any(_is_text(argument, looped) for argument in node.args)
    return node.func.attr in _INSPECTS and _is_text(node.func.value, looped)


def _is_text(node: ast.expr, looped: set[tuple[str, int]]) -> bool:
    """Whether an expression is a reason or a label, by its names."""
    if isinstance(node, ast.Name):
        return _TEXT.search(node.id) is not None or (node.id, node.lineno) in looped
    if isinstance(node, ast.Attribute):
        return _is_text(node.value, looped) if node.attr == "str" else _TEXT.search(node.attr) is not None
    if isinstance(node, ast.BoolOp):
        return any(_is_text(value, looped) for value in node.values)
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return _TEXT.search(node.slice.value) is not None
        return _named(node.value, _REASONS) or (isinstance(node.value, ast.Call) and _is_text(node.value, looped))
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
            return _is_text(node.args[0], looped)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            key = node.args[0]
            of_row = isinstance(key, ast.Constant) and _TEXT.search(str(key.value)) is not None
            return of_row or _named(node.func.value, _REASONS)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _INSPECTS | _KEEPS:
            return _is_text(node.func.value, looped)
    return False


def _named(node: ast.AST, names: set[str]) -> bool:
    """Whether a variable or a field has one of some names."""
    if isinstance(node, ast.Attribute):
        return node.attr in names
    return isinstance(node, ast.Name) and node.id in names


def _looped(tree: ast.AST) -> set[tuple[str, int]]:
    """Names that hold reasons and labels in a loop or a comprehension over such a table, with the lines of the loop."""
    names = set[tuple[str, int]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.For):
            loops: Sequence[ast.For | ast.comprehension] = [node]
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            loops = node.generators
        else:
            continue
        for loop in loops:
            over = loop.iter
            texts = [part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)]
            if not any(_named(part, _REASONS) for part in ast.walk(over)):
                of_values = any(isinstance(part, ast.Attribute) and part.attr == "values" for part in ast.walk(over))
                of_labels = not of_values and any(_named(part, _BY_LABEL) for part in ast.walk(over))
                texts = texts[:1] if of_labels else []  # of a label and a value, the label
            names |= {(text, line) for text in texts for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    return names
