"""Public names of a package, each imported when it is first asked for (PEP 562)."""

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any


def attach(
    package: str, modules: Mapping[str, str], *, packages: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, so that importing it imports none of its modules.

    It is what ``lazy_loader.attach`` is in the packages of Scientific Python (SPEC 1). A type checker does not see it:
    it reads the imports under ``if TYPE_CHECKING:`` next to it, and a test holds that both have the same names.

    Args:
        package: ``__name__`` of the package.
        modules: path of the module that has each public name.
        packages: paths of further packages with all of their public names, which come after those in `modules`.

    Raises:
        ImportError: the package is imported under another name than that below ``fedleak``.
    """
    check_name(package)
    # Names in capitals come first, as linters sort `__all__`.
    names = sorted(modules, key=lambda name: (not name.isupper(), name))
    module_of = {name: modules[name] for name in names}
    # A package below exports its own names here too; they stand in its `__all__`.
    for path in packages:
        module_of |= dict.fromkeys(importlib.import_module(path).__all__, path)

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)  # so that Python asks only once
        return value

    def directory() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return get, directory, list(module_of)


def public_names(package: ModuleType) -> list[str]:
    """``__all__`` of a package, which a type checker does not see where `attach` makes it."""
    names: list[str] = package.__all__
    return names


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
