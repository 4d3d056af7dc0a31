"""Changes of a configuration of ``train.py``: dotted keys as on its command line, merged, or written as its options."""

import copy
import difflib
import inspect
import json
import pydoc
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from lightning import LightningModule

from datamodules.base import FederatedDataModule
from protocol.errors import InputError

Config = dict[str, Any]
T = TypeVar("T")
PARTS = ("data", "model", "trainer")
"""Keys of a configuration below which there are others."""
_BASES: dict[str, type] = {"data": FederatedDataModule, "model": LightningModule}
_ITSELF = ("class_path", "init_args")


def overridden(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> Config:
    """A configuration with some keys changed.

    Mappings merge, everything else replaces what was there. Another class of the data or the model keeps the arguments
    of the former one that it takes.

    Args:
        config: as a file of configs/train holds it.
        overrides: by dotted key, such as ``model.local.epochs``; ``init_args`` is left out, as on the command line, and
            a key that ends in ``+`` adds to a list, as there.

    Raises:
        InputError: a key begins with none of `PARTS`, or leads through something that has no keys.
    """
    made = copy.deepcopy(dict(config))
    for key, value in overrides.items():
        head, *path = key.split(".")
        if head not in PARTS:
            raise InputError(
                expected=f"keys of train.py that begin with {', '.join(PARTS)}",
                found=repr(key),
                way_out="Write them as on train.py's command line, without the dashes.",
            )
        if not path and isinstance(value, str):
            value = {"class_path": value}
        for name in reversed(path):
            value = {name: value}
        made[head] = _merged(made.get(head, {}), value, _BASES.get(head))
    return made


def _merged(old: Any, new: Any, base: type | None = None) -> Any:
    if not isinstance(new, Mapping):
        return copy.deepcopy(new)
    if not isinstance(old, Mapping):
        # A class that was named without arguments gets some.
        old = {"class_path": old} if isinstance(old, str) and "class_path" not in new else {}
    if "class_path" in new and new["class_path"] != old.get("class_path"):
        kept = _taken(new["class_path"], old.get("init_args", {}), base)
        old = {"class_path": new["class_path"], "init_args": kept}
    if "class_path" in old:
        own = {key: value for key, value in new.items() if key not in _ITSELF}
        new = {"init_args": {**new.get("init_args", {}), **own}}
    merged = dict(old)
    for key, value in new.items():
        if key.endswith("+"):
            merged[key[:-1]] = [*(merged.get(key[:-1]) or []), *copy.deepcopy(value)]
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


def _taken(path: str, arguments: Mapping[str, Any], base: type | None) -> dict[str, Any]:
    """Of the arguments of another class those that this one takes; none where it is no class of data or models."""
    if base is None:
        return {}
    names = set(argument_names(class_named(path, base)))
    return {name: value for name, value in arguments.items() if name in names}


def argument_names(kind: type) -> Iterator[str]:
    """Names of the arguments of a class's constructor; of those that it passes on too."""
    for one in inspect.getmro(kind)[:-1]:
        if "__init__" not in vars(one):
            continue
        parameters = inspect.signature(one).parameters.values()
        yield from (p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return


def class_named(name: str, base: type[T]) -> type[T]:
    """A class by its path, or by its own name where it has been imported.

    Raises:
        InputError: there is none below `base`.
    """
    found = pydoc.locate(name) if "." in name else None
    found = found or next((kind for kind in below(base) if kind.__name__ == name), None)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InputError(
            expected=f"the name or path of a subclass of {base.__name__}",
            found=repr(name),
            way_out="Check the spelling, and that the package can be imported from here (PYTHONPATH).",
        )
    return found


def below(base: type[T]) -> Iterator[type[T]]:
    """All subclasses that have been imported."""
    for kind in base.__subclasses__():
        yield kind
        yield from below(kind)


def options_of(config: Mapping[str, Any], base: Mapping[str, Any]) -> list[str]:
    """What must be added to ``train.py fit --config BASE`` to get a configuration, each quoted for a shell."""
    return [shlex.quote(option) for part in PARTS for option in _options(f"--{part}", config.get(part), base.get(part))]


def option_words(key: str, values: Mapping[str, Any]) -> list[str]:
    """Options such as ``--attack.max_iter=60``, each quoted for a shell."""
    return [shlex.quote(option) for option in _each(key, values, {})]


def _options(key: str, value: Any, old: Any) -> Iterator[str]:
    if value == old:
        return
    if isinstance(value, Mapping) and "class_path" in value:
        other = not isinstance(old, Mapping) or value["class_path"] != old.get("class_path")
        if other:
            yield f"{key}={value['class_path']}"
        known = _kept_by_the_parser(old) if other else old.get("init_args", {})
        yield from _each(key, value.get("init_args", {}), known)
    elif isinstance(value, Mapping) and None in value.values():
        yield f"{key}={_written(value)}"  # the parser takes no null for a number by itself
    elif isinstance(value, Mapping) and value:
        yield from _each(key, value, old if isinstance(old, Mapping) else {})
    else:
        yield f"{key}={_written(value)}"


def _kept_by_the_parser(old: Any) -> Mapping[str, Any]:
    """What the parser keeps of another class's arguments: those that the new one takes, as `overridden` does."""
    kept: Mapping[str, Any] = old.get("init_args", {}) if isinstance(old, Mapping) else {}
    return kept


def _each(key: str, values: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield from _options(f"{key}.{name}", value, old.get(name))


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def kind_of(data: type) -> type:
    """The kind of data set that a class is: the nearest abstract class above it."""
    return next(one for one in inspect.getmro(data)[1:] if inspect.isabstract(one))


def near(name: str, known: Iterable[str]) -> str | None:
    """A way out that names what was probably meant; None where nothing is near."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean {found[0]}?" if found else None
