"""Which checks there are: those of the guard, those that it declares for the main package, and plug-ins of others.

A plug-in is a check of another distribution, which names it in the entry point group `GROUP`: a class, or a module
whose classes are checks. What is registered and cannot be used is an error, upon which nothing leaves: a check that
were left out would be missed by nobody.
"""

import functools
import importlib
import importlib.metadata
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import get_args

from fedleak_guard import checks, declared_checks
from fedleak_guard.check import Check
from fedleak_guard.policy import Action
from fedleak_recorder.errors import InputError, require

GROUP = "fedleak_guard.checks"
"""Entry points of checks."""
MAIN_PACKAGE = "fedleak"
"""Name of the main package's distribution, of its only package, and of its entry point."""
_IN_A_CHECKOUT = EntryPoint(name=MAIN_PACKAGE, value="fedleak.guard_checks", group=GROUP)
"""The main package's entry point, where its metadata lack it: a checkout on the path, or one installed long ago."""
_NAME = re.compile("[a-z][a-z0-9-]{0,39}")
_WAY_OUT = "Correct or uninstall what brings it; until then nothing leaves the site."


def known_checks() -> Mapping[str, type[Check]]:
    """All checks that a policy may name, those that attack last; those of the main package as the guard declares them.

    It imports the plug-ins of others, and nothing of the main package.

    Raises:
        InputError: a plug-in cannot be used.
    """
    return _known(tuple(sys.path))


def checks_to_make() -> Mapping[str, type[Check]]:
    """The same checks, with the main package's own plug-ins in the place of their declarations.

    Where the main package is not installed, these are the declarations, which say of each check that it is not made.

    Raises:
        InputError: a plug-in cannot be used, or the main package is there and lacks one.
    """
    return _to_make(tuple(sys.path))


def is_installed() -> bool:
    """Whether the main package is installed, or anything of its name is on the path.

    A file or folder of an app that has its name counts too. What the guard needs of it is then not there, and nothing
    leaves.
    """
    try:
        importlib.metadata.distribution(MAIN_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        try:
            return PathFinder.find_spec(MAIN_PACKAGE, sys.path) is not None
        except (OSError, ValueError):
            return True  # a folder that cannot be read may have it
    return True


def checks_in(module: ModuleType) -> list[type[Check]]:
    """The checks that a module defines, and those of the modules in its folder.

    Base classes are left out: those whose name begins with an underscore, and abstract ones without the name of a
    check.
    """
    modules = [module]
    for file in pkgutil.iter_modules(getattr(module, "__path__", ())):
        modules.append(importlib.import_module(f"{module.__name__}.{file.name}"))
    kinds: list[type[Check]] = []
    for part in modules:
        for kind in vars(part).values():
            # What a module imports belongs to another one.
            is_check = isinstance(kind, type) and issubclass(kind, Check) and kind.__module__ == part.__name__
            if not is_check or kind.__name__.startswith("_"):
                continue
            is_base = inspect.isabstract(kind) and not hasattr(kind, "name")
            if not is_base:
                kinds.append(kind)
    return kinds


@functools.lru_cache(maxsize=8)  # by the path, on which everything is looked for; no error is kept
def _known(path: tuple[str, ...]) -> Mapping[str, type[Check]]:  # noqa: ARG001
    """`known_checks` for one path of modules."""
    by_name = _by_name([*checks_in(checks), *checks_in(declared_checks)])
    for entry in _entry_points():
        if entry.name == MAIN_PACKAGE:
            continue
        for plug_in in _plug_ins(entry):
            _require_one_name(plug_in, by_name.get(plug_in.name))
            by_name[plug_in.name] = plug_in
    return _by_name(by_name.values())


@functools.lru_cache(maxsize=8)
def _to_make(path: tuple[str, ...]) -> Mapping[str, type[Check]]:
    """`checks_to_make` for one path of modules."""
    declared = _known(path)
    registered = [entry for entry in _entry_points() if entry.name == MAIN_PACKAGE]
    if not registered and not is_installed():
        return declared
    to_make = dict(declared)
    for entry in registered or [_IN_A_CHECKOUT]:
        for plug_in in _plug_ins(entry):
            # The first plug-in takes the place of its declaration, a second one of the same name finds the first.
            declaration = to_make.get(plug_in.name)
            if (
                declaration is None
                or declaration.__module__ != declared_checks.__name__
                or not issubclass(plug_in, declaration)
            ):
                _require_one_name(plug_in, declaration)
                raise InputError(
                    expected=f"checks of {MAIN_PACKAGE} that {declared_checks.__name__} declares",
                    found=f"{plug_in.name} of {_path(plug_in)}",
                    way_out="Install fedleak and fedleak-guard of one release; until then nothing leaves the site.",
                )
            to_make[plug_in.name] = plug_in
    # A declaration that is left is a check that the main package should have made: it is none to leave out.
    missing = [name for name, kind in to_make.items() if kind.__module__ == declared_checks.__name__]
    require(
        not missing,
        f"the checks of {MAIN_PACKAGE}, which is installed",
        f"none named {', '.join(missing)}",
        "Install fedleak and fedleak-guard of one release; until then nothing leaves the site.",
    )
    return _by_name(to_make.values())


def _by_name(kinds: Iterable[type[Check]]) -> dict[str, type[Check]]:
    """Checks by name, those that attack last, since they take longest."""
    ordered = sorted(kinds, key=lambda kind: (kind.exact, kind.name))
    return {kind.name: kind for kind in ordered}


def _entry_points() -> Sequence[EntryPoint]:
    """Entry points of checks, in the order of their names.

    Raises:
        InputError: the metadata of a distribution are damaged.
    """
    try:
        return sorted(importlib.metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise InputError(expected=f"entry points of the group {GROUP}", found=problem, way_out=_WAY_OUT) from None


def _plug_ins(entry: EntryPoint) -> list[type[Check]]:
    """The checks at an entry point.

    Raises:
        InputError: it cannot be imported, or is something else.
    """
    expected = f"the checks at {entry.value} of {entry.name}, which is installed"
    try:
        value = entry.load()
        if isinstance(value, ModuleType):
            _require_one_package(value)
            kinds = checks_in(value)
        else:
            kinds = [value]
    except Exception as error:
        raise InputError(
            expected=expected,
            found=f"{type(error).__name__}: {error}",
            way_out=f"Start where no file or folder is named {entry.name}, and install all that it needs; until then "
            "nothing leaves the site.",
        ) from None
    require(kinds, expected, "a module without any", _WAY_OUT)
    for kind in kinds:
        require(_is_check(kind), f"{expected}: a class that extends {Check.__qualname__}", repr(kind)[:80], _WAY_OUT)
        fault = _fault_of(kind)
        require(not fault, f"{expected}, with {fault}", f"other values of {_path(kind)}", _WAY_OUT)
    return kinds


def _require_one_package(module: ModuleType) -> None:
    """Checks that a module lies in the package of its name.

    In an editable installation, a module is found even where an app's folder takes the place of its package. What the
    module then imports of the package is partly the app's.

    Raises:
        ImportError: it lies elsewhere.
    """
    above = module.__name__.rpartition(".")[0]
    if not above:
        return
    folders = {Path(folder).resolve() for folder in sys.modules[above].__path__}
    # The folder is followed to where it lies, the module in it is not: it may be a link.
    file = Path(str(module.__file__)).absolute()
    folder_of_package = file.parent
    if hasattr(module, "__path__"):  # a package, whose file is the __init__.py in a folder of its own
        folder_of_package = folder_of_package.parent
    folder_of_package = folder_of_package.resolve()
    if folder_of_package not in folders:
        raise ImportError(
            f"{module.__name__} lies in {folder_of_package}, and {above} in {', '.join(map(str, folders))}"
        )


def _is_check(value: object) -> bool:
    """Whether something is a class of checks that can be made."""
    return isinstance(value, type) and issubclass(value, Check) and not inspect.isabstract(value)


def _fault_of(kind: type[Check]) -> str:
    """The attribute of a check that has no right value, as it should be; empty if all are right."""
    name = getattr(kind, "name", None)
    text = getattr(kind, "text", None)
    actions = kind.actions
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        return "a name of at most 40 small letters, digits and hyphens"
    if not isinstance(text, str) or not text:
        return "a text"
    if not isinstance(actions, tuple) or not set(actions) <= set(get_args(Action)):
        return f"actions among {', '.join(get_args(Action))}"
    if kind.action not in actions:
        return "an action among its actions"
    if not all(isinstance(value, bool) for value in (kind.exact, kind.may_lack, kind.limited)):
        return "exact, may_lack and limited that are true or false"
    return ""


def _require_one_name(plug_in: type[Check], same_name: type[Check] | None) -> None:
    """Refuses a second check of a name."""
    if same_name is not None:
        raise InputError(
            expected="checks with different names",
            found=f"{plug_in.name} of {_path(plug_in)} and of {_path(same_name)}",
            way_out=_WAY_OUT,
        )


def _path(kind: type[Check]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
