"""A package's public names, each imported when it is first asked for (PEP 562)."""

import ast
import importlib
import inspect
import sys
from typing import Any


def exports(package: str) -> list[str]:
    """``__all__`` of a package, which it gives ``__getattr__`` and ``__dir__``, from its ``if TYPE_CHECKING:``.

    A type checker reads the imports there; nothing runs them. ``from package.module import Name as Name`` exports one
    name, ``from package.folder import *`` those that a package below exports. So a name is written once, and importing
    the package imports none of the modules.
    """
    check_name(package)
    own = vars(sys.modules[package])
    modules = module_of_each(package)

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        own[name] = getattr(importlib.import_module(modules[name]), name)
        return own[name]

    own |= {"__getattr__": get, "__dir__": lambda: sorted({*own, *modules})}
    return list(modules)


def check_name(package: str) -> None:
    """Refuses a package of fedleak under another name: each of its classes would then be there twice.

    Raises:
        ImportError: the folder of a room at the top of the checkout is imported by itself, as ``import attacks``.
    """
    if package.partition(".")[0] != "fedleak":
        raise ImportError(
            f"expected an import of fedleak.{package}; found {package}, a second copy of its classes. "
            f"Write fedleak.{package}."
        )


def module_of_each(package: str) -> dict[str, str]:
    """The module that has each exported name; a package's own names sorted as linters sort ``__all__``."""
    found: dict[str, str] = {}
    own: dict[str, str] = {}
    for block in ast.parse(inspect.getsource(sys.modules[package])).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for line in block.body:
                module = line.module if isinstance(line, ast.ImportFrom) and line.module else ""
                for alias in line.names if isinstance(line, ast.ImportFrom) else ():
                    if alias.name == "*":
                        importlib.import_module(module)
                        found |= module_of_each(module)
                    else:
                        own[alias.name] = module
    return {**{name: own[name] for name in sorted(own, key=lambda name: (not name.isupper(), name))}, **found}
