"""Objects that a person names, with arguments: attacks, exporters, steps of tables, defences, learners.

There is one way to name them (a short name, the name of a class, or the path of a class, which is imported), one check
of their arguments by type and range, and one message for each kind of mistake. What a stranger's file names is read by
`fedleak.core.named_by_strangers`.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from fedleak.core.argument_values import Reader
from fedleak.core.class_paths import class_at, concrete_classes
from fedleak.core.errors import InputError
from fedleak.core.parameters import parameters_of
from fedleak.core.value_limits import CLASS_PATH
from fedleak_recorder.nearest import did_you_mean

_Base = TypeVar("_Base")
_Made = TypeVar("_Made")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind(Generic[_Base]):
    """Classes that are named alike, e.g. all exporters.

    Attributes:
        base: class that they are derived from.
        noun: what one of them is called, e.g. ``"an exporter"``.
        names: gives the short names.
        class_of: the class of a short name.
        option: what stands before the name of an argument, e.g. ``"--to."``; empty in files.

    Example:
        >>> from fedleak.core import named
        >>> from fedleak.evaluation.steps import RECORDING_STEPS, Step
        >>> steps = named.Kind(
        ...     base=Step, noun="a step", names=RECORDING_STEPS.keys, class_of=RECORDING_STEPS.__getitem__
        ... )
        >>> try:
        ...     named.make(steps, "sharpnes")
        ... except named.InputError as error:
        ...     print(error)
        expected the name of a step, or the path of its class; found 'sharpnes'. Did you mean sharpness?
    """

    base: type[_Base]
    noun: str
    names: Callable[[], Collection[str]]
    class_of: Callable[[str], type[_Base]]
    option: str = ""


def find(kind: Kind[_Base], name: str) -> type[_Base]:
    """The class of a name.

    Args:
        kind: what is named.
        name: short name, or the path of a class, such as ``my_package.MyExporter``, which is imported.

    Raises:
        InputError: there is none, or it is abstract or of another kind.
    """
    if "." in name:
        return class_at(name, kind.base)
    names = kind.names()
    if name not in names:
        raise unknown_name(f"the name of {kind.noun}, or the path of its class", name, names)
    return kind.class_of(name)


def make(kind: Kind[_Base], name: str, arguments: Mapping[str, Any] | None = None) -> _Base:
    """The object of a name.

    Args:
        kind: what is named.
        name: short name or class path, as in `find`.
        arguments: plain values, or objects, by the names of the constructor's arguments.

    Raises:
        InputError: there is no such class, or an argument is unknown, missing, of a wrong type, or out of range.
    """
    return build(find(kind, name), arguments, where=f"the {kind.noun.partition(' ')[2]} {name}", option=kind.option)


def build(
    kind: type[_Made],
    arguments: Mapping[str, Any] | None,
    *,
    where: str,
    option: str = "",
    also_known: Iterable[str] = (),
) -> _Made:
    """Object of a class, see `make`.

    Args:
        kind: the class.
        arguments: by name, None for the defaults.
        where: what the arguments belong to, for messages.
        option: see `Kind`.
        also_known: names that may stand next to the arguments, to be suggested where one is misspelt.
    """
    reader = ReaderOfOwnWords(where=where, way_out=_way_out(option), option=option, also_known=tuple(also_known))
    return reader.build(kind, arguments or {})


def value(hint: Any, plain_value: Any, *, where: str, way_out: str) -> Any:
    """Value of a type from plain values, in which objects are described by ``class_path`` and ``init_args``.

    Raises:
        InputError: it is of another type, or describes an object that cannot be made.
    """
    return ReaderOfOwnWords(where=where, way_out=way_out).value(hint, plain_value, "")


def unknown_name(expected: str, name: object, names: Iterable[str]) -> InputError:
    """The error about a name that nothing has, with those that are near to it, or all."""
    distinct_names = list(dict.fromkeys(names))
    listed = f"Known: {', '.join(sorted(distinct_names)) or 'none'}."
    return InputError(
        expected=expected,
        found=repr(name)[:100],
        way_out=did_you_mean(str(name), distinct_names, listed),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReaderOfOwnWords(Reader):
    """Reader of what the person in front of the command has written: paths of classes are imported.

    Attributes:
        option: see `Kind`.
        also_known: see `build`.
    """

    option: str = ""
    also_known: tuple[str, ...] = ()
    trusts: ClassVar[bool] = True

    def argument(self, kind: type, name: str, value: Any) -> Any:
        """Value of an argument; where it has some fields of a dataclass alone, the others are those of the default."""
        default = parameters_of(kind)[name].default
        is_partial = isinstance(value, Mapping) and CLASS_PATH not in value
        if not is_partial or isinstance(default, type) or not dataclasses.is_dataclass(default):
            return super().argument(kind, name, value)
        inside = dataclasses.replace(self, where=f"{self.where}.{name}", depth=self.depth + 1)
        given_fields = inside.arguments(type(default), value)
        return inside.build(type(default), {**_fields(default), **given_fields})

    def class_named(self, base: type[Any], name: str) -> type[Any]:
        """The class at a path, or of the name of a class."""
        if "." in name:
            return class_at(name, base)
        class_of = {kind.__name__: kind for kind in concrete_classes(base)}
        if name not in class_of:
            raise unknown_name(f"the name or path of a {base.__name__} as {self.where}", name, class_of)
        return class_of[name]

    def check_may_describe(self, base: type[Any], value: Any) -> None:
        """Refuses a description where only an object from Python will do, such as a tensor."""
        if base.__module__.partition(".")[0] in ("builtins", "numpy", "torch"):
            raise self.wrong(f"a {base.__name__}", value)

    def unknown_argument(self, kind: type, name: Any, argument_names: Iterable[str]) -> InputError:
        """The error about an argument that a class does not take."""
        return super().unknown_argument(kind, name, [*argument_names, *self.also_known])

    def how_to_give(self, kind: type, name: str) -> str:
        """The option, or the line, that gives an argument."""
        form = "VALUE"
        if name in getattr(kind, "file_arguments", {}):
            form = "DIR"
        if self.option:
            return f"Give {self.option}{name} {form}."
        return f"Add {name}: {form}."


def _fields(default: Any) -> dict[str, Any]:
    """Fields of a dataclass that its constructor takes, as objects."""
    return {field.name: getattr(default, field.name) for field in dataclasses.fields(default) if field.init}


def _way_out(option: str) -> str:
    if option:
        return f"Correct {option}NAME VALUE, or what names it."
    return "Correct it where it is named."
