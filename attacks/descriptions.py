"""What attacks say of themselves, read from their source: nothing is imported, so a list of attacks takes no torch."""

import __future__

import ast
import contextlib
import dataclasses
import functools
import pkgutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attacks
from protocol.exports import module_of_each
from protocol.threat_model import ThreatModel

ATTRIBUTES = frozenset({"name", "family", "baseline", "references", "exact", "cost", "threat_model"})
_READ = ATTRIBUTES | {"estimates", "inferred"}
_OURS = ("attacks", "client", "protocol", "fedleak_recorder")
"""Packages whose constants descriptions may refer to."""


def described() -> list[Any]:
    """A stand-in for every attack of this package: a class with the attributes that describe it, and nothing else.

    They are those of `attacks.registry.REGISTRY`, in its order.
    """
    exported = module_of_each(attacks.__name__)
    found = [_names(module)[name] for name, module in exported.items()]
    every = (info.name for info in pkgutil.walk_packages(attacks.__path__, f"{attacks.__name__}.") if not info.ispkg)
    for module in sorted({*every} - {*exported.values()}):
        held = _names(module)
        found += [held[name] for name in _classes(module) if name[0] != "_" and "name" in vars(held[name])]
    return [kind for kind in found if hasattr(kind, "name") and hasattr(kind, "family")]


def _parsed(module: str) -> ast.Module:
    source = Path(str(getattr(find_spec(module), "origin", None)))
    return ast.parse(source.read_text(encoding="utf-8"))


def _classes(module: str) -> list[str]:
    return [node.name for node in _parsed(module).body if isinstance(node, ast.ClassDef)]


@functools.cache
def _names(module: str) -> dict[str, Any]:
    """What descriptions may refer to: a module's constants, its classes, and what it imports of ours.

    A constant that takes more than these, such as a tensor, is left out; a description that refers to it is an error.
    """
    if module == ThreatModel.__module__:
        return {ThreatModel.__name__: ThreatModel}
    names: dict[str, Any] = {"dataclasses": dataclasses}
    for node in _parsed(module).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in _OURS:
            held = _names(str(node.module))
            names |= {alias.name: held[alias.name] for alias in node.names if alias.name in held}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            with contextlib.suppress(Exception):
                _run(node, names)
        elif isinstance(node, ast.ClassDef):
            node.bases = [base for base in node.bases if isinstance(base, ast.Name) and base.id in names]
            node.body = [line for line in node.body if _describes(line)] or [ast.Pass()]
            node.decorator_list, node.keywords = [], []
            _run(node, names)
    return names


def _describes(line: ast.stmt) -> bool:
    if isinstance(line, ast.AnnAssign):
        return line.value is not None and ast.unparse(line.target) in _READ
    return isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) in _READ


def _run(statement: ast.stmt, names: dict[str, Any]) -> None:
    module = ast.fix_missing_locations(ast.Module([statement], type_ignores=[]))
    exec(compile(module, "<description>", "exec", __future__.annotations.compiler_flag), names)
