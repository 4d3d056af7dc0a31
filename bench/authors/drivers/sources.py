"""The authors' sources: a folder of modules, and functions that only a notebook holds."""

import ast
import importlib
import json
import sys
from pathlib import Path
from typing import Any

SOURCES = Path(sys.prefix) / "src"
"""The checkout in this environment."""


def authors_modules(folder: Path, *names: str) -> list[Any]:
    """Modules of the authors, by name, from a folder that goes before all others on the path."""
    sys.path.insert(0, str(folder))
    return [importlib.import_module(name) for name in names]


def notebook_function(notebook: Path, name: str, scope: dict[str, Any]) -> Any:
    """The first function of a name that a notebook defines, compiled as it stands there, with names from a scope."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        for node in ast.parse("".join(cell["source"])).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                exec(compile(ast.Module([node], []), str(notebook), "exec"), scope)
                return scope[name]
    raise SystemExit(f"{notebook}: expected a function {name}, found none; check out the pinned commit")
