"""Classes that users name by a path, and those that a package's modules define: what is added needs no list."""

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from fedleak.core.errors import InputError, require
from fedleak.core.moved import current_path

ROOMS = frozenset(
    f"fedleak.{name}" for name in ("attacks", "client", "defenses", "evaluation", "modules", "server", "training")
)
"""Packages of this project with classes that a file may name."""
_ADDED_IN = {"fedleak.training": "modules"}
"""Folder of additions with the classes of a base, where they lie in another package than the base."""
_Kind = TypeVar("_Kind")


def find_in_current_folder() -> None:
    """Lets Python find modules of the current folder; called before a name that the user gave is imported.

    A command that an installation puts on the path does not look there by itself. The folder comes last, so that no
    file in it hides a package; and it stays, because such a module may import others of the folder later.
    """
    folder = str(Path.cwd())
    if "" not in sys.path and folder not in sys.path:
        sys.path.append(folder)


def class_at(path: str, base: type[_Kind]) -> type[_Kind]:
    """The class at a path such as ``my_package.MyClass``, whose module is imported.

    Args:
        path: from the user, never from a recording: an import runs code.
        base: what it must be a subclass of.

    Raises:
        InputError: there is none, it is no subclass of `base`, it is abstract, or it lacks an attribute.
    """
    # Older paths of this project's classes still stand in configurations.
    module, _, name = current_path(path).rpartition(".")
    find_in_current_folder()
    try:
        kind = getattr(importlib.import_module(module), name)
    except (ImportError, SyntaxError, AttributeError, ValueError) as error:
        raise InputError(
            expected=f"the path of a subclass of {base.__name__}, such as my_package.MyClass",
            found=f"{path}: {error}",
            way_out="Check the spelling, and that the package is installed, in this folder or in PYTHONPATH.",
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, base)) or inspect.isabstract(kind) or kind is base:
        raise InputError(
            expected=f"a subclass of {base.__module__}.{base.__name__} without abstract methods",
            found=f"{path}, which is {kind!r}",
            way_out=f"Derive the class from {base.__name__}.",
        )
    check_declared(kind, base)
    return kind


def check_declared(kind: type, base: type) -> None:
    """Checks that a class, unless it is abstract, has every attribute that its base class declares without a value."""
    missing = [name for name in inspect.get_annotations(base) if not hasattr(kind, name)]
    require(
        not missing or inspect.isabstract(kind),
        f"{', '.join(missing)} in {kind.__module__}.{kind.__qualname__}",
        "none",
        f"Set it in the class; see {base.__module__}.{base.__qualname__}.",
    )


def classes_in(package: ModuleType, base: type[_Kind], *, without: str | None = None) -> list[type[_Kind]]:
    """Subclasses of `base` that the modules of a package define, without abstract ones, by module and place in it.

    Modules of the folder `without` in the package are not imported.
    """
    modules = []
    for root in package.__path__:
        for path in Path(root).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            # Packages define nothing in their __init__.py; a class that they export would come twice.
            if path.name != "__init__.py" and parts[0] != without:
                modules.append(".".join([package.__name__, *parts]))
    classes: list[type[_Kind]] = []
    for module in sorted(modules):
        for member in vars(importlib.import_module(module)).values():
            # What a module imports from elsewhere belongs to the module that defines it.
            is_defined_here = isinstance(member, type) and member.__module__ == module
            if is_defined_here and issubclass(member, base) and member is not base and not inspect.isabstract(member):
                classes.append(member)
    return classes


def named_classes(package: ModuleType, base: type[_Kind]) -> dict[str, type[_Kind]]:
    """Classes of `classes_in` that have a `name` of their own, by it; the others are bases of these."""
    return {vars(kind)["name"]: kind for kind in classes_in(package, base) if "name" in vars(kind)}


def room_of(kind: type) -> str:
    """Package of a class: a room of this project, or the top-level package of others."""
    top, *below = kind.__module__.split(".")
    if top == "fedleak" and below:
        return f"{top}.{below[0]}"
    return top


def concrete_classes(base: type[_Kind]) -> Iterator[type[_Kind]]:
    """Concrete classes of a base: all of this project's, and those that the user's imports have defined."""
    if room_of(base) in ROOMS:
        # Python knows a subclass only once its module is imported, so all modules of the folder are.
        above = base.__module__.rpartition(".")[0]
        path = f"fedleak.{_ADDED_IN[above]}" if above in _ADDED_IN else above
        classes_in(importlib.import_module(path), base)
    for kind in subclasses(base):
        if not inspect.isabstract(kind):
            yield kind


def subclasses(kind: type[_Kind]) -> Iterator[type[_Kind]]:
    """A class and all classes below it that are defined."""
    yield kind
    for below in kind.__subclasses__():
        yield from subclasses(below)
