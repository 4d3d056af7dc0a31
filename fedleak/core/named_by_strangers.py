"""Objects from the plain values of a stranger's file: nothing that the file names is imported, opened or evaluated.

The type of each argument decides what its value may be. Where the type is a class, the value names one of a closed
list: the classes of this project that the argument accepts, and those that the user's own code has defined.
"""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from fedleak.core.argument_values import Reader
from fedleak.core.class_paths import ROOMS, concrete_classes, room_of
from fedleak.core.described import plain
from fedleak.core.moved import current_path
from fedleak.core.parameters import class_path, parameters_of

_Made = TypeVar("_Made")


def from_plain(kind: type[_Made], values: Any, *, where: str, way_out: str) -> _Made:
    """Object of a class from plain values, each checked against the type of its argument.

    Args:
        kind: the class.
        values: values by argument; a missing one has its default.
        where: origin of the values, for the message.
        way_out: what the reader of the message can do.

    Raises:
        InputError: a value is unknown, has a wrong type, is out of range, or names a class or a file.
    """
    return ReaderOfStrangers(where=where, way_out=way_out, package=room_of(kind)).build(kind, values)


def arguments_from(kind: type, values: Any, *, where: str, way_out: str) -> dict[str, Any]:
    """Arguments of a class from plain values, as in `from_plain`."""
    return ReaderOfStrangers(where=where, way_out=way_out, package=room_of(kind)).arguments(kind, values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReaderOfStrangers(Reader):
    """Reader of one file of a stranger.

    Attributes:
        package: package of the class that is built, whose own classes are allowed too.
    """

    package: str
    trusts: ClassVar[bool] = False

    def check_may_describe(self, base: type[Any], value: Any) -> None:
        """Refuses objects of classes outside this project and the package of the class that is built."""
        if room_of(base) not in {*ROOMS, self.package}:
            raise self.wrong(f"no value, because a file may not give a {base.__name__}", value)

    def class_named(self, base: type[Any], name: str) -> type[Any]:
        """The class of a path among those of the closed list."""
        class_of = {class_path(kind): kind for kind in concrete_classes(base)}
        if name not in class_of:
            name = current_path(name)
        kind = class_of.get(name) or _exported(name)
        # A name that a module exports may be anything: only what is in the list counts.
        if kind is None or kind not in class_of.values():
            names = ", ".join(sorted(listed.__name__ for listed in class_of.values()))
            raise self.wrong(f"a {base.__name__} among {names}", name)
        return kind

    def argument(self, kind: type, name: str, value: Any) -> Any:
        """Value of an argument, which names no file or folder unless it is one of a few words, such as ``packaged``."""
        allowed_words: Mapping[str, tuple[str, ...]] = getattr(kind, "file_arguments", {})
        if name in allowed_words and value is not None and value not in allowed_words[name]:
            raise self.wrong(f"{name}: no file, but {' or '.join(allowed_words[name]) or 'null'}", value)
        parameter = parameters_of(kind)[name]
        # The default may be of a class that no file may give; its description stands in the file as it was written.
        if isinstance(value, Mapping) and not parameter.is_required and value == plain(parameter.default):
            return parameter.default
        return super().argument(kind, name, value)


def _exported(path: str) -> Any:
    """What a module that is imported already holds under a name, such as a class that a package exports; or None."""
    module, _, name = path.rpartition(".")
    if module not in sys.modules:
        return None
    return vars(sys.modules[module]).get(name)
