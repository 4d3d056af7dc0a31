"""The registry of attacks: every attack that this package exports and its variants, by family and name."""

import dataclasses
import inspect
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fedleak.core import named
from fedleak.core.additions import room
from fedleak.core.attack import Attack
from fedleak.core.class_paths import class_at, classes_in
from fedleak.core.errors import InputError, require
from fedleak.core.exports import public_names


def check_distinct(kinds: Iterable[type[Attack]]) -> None:
    """Checks that results can be distinguished by family and name.

    Raises:
        InputError: two of the classes have one family and name.
    """
    by_name: dict[str, type[Attack]] = {}
    for kind in kinds:
        for name in kind.names():
            first = by_name.setdefault(f"{kind.family}/{name}", kind)
            if first is not kind:
                raise InputError(
                    expected="attacks with different families or names",
                    found=f"{kind.family}/{name} as {_path(first)} and as {_path(kind)}",
                    way_out="Rename one of the two: `name` or `manipulated_names` of the class.",
                )


def variants_of(kind: type[Attack]) -> dict[str, type[Attack]]:
    """A subclass of an attack for each of its variants by key, in the module of the attack."""
    if kind.variant_of is not None:
        return {}
    types: dict[str, Any] = {}
    if dataclasses.is_dataclass(kind):
        types = {field.name: field.type for field in dataclasses.fields(kind)}
    module = vars(sys.modules[kind.__module__])
    variants = {}
    for key, values in kind.variants.items():
        name = kind.__name__ + key.title().replace("-", "")
        # A variant is made once, so that its class is the same everywhere.
        if name not in module:
            fields = [(argument, types[argument], value) for argument, value in values.items() if argument in types]
            attributes = {attribute: value for attribute, value in values.items() if attribute not in types}
            module[name] = dataclasses.make_dataclass(
                name,
                fields,
                bases=(kind,),
                namespace={
                    "name": f"{kind.name}-{key}",
                    **attributes,
                    "variant_of": kind,
                    "variant_key": key,
                    "__doc__": kind.__doc__,
                    "__module__": kind.__module__,
                },
                frozen=True,
                kw_only=True,
            )
        variants[key] = module[name]
    return variants


def _path(kind: type[Attack]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


_attacks = room("attacks")
_public = [getattr(_attacks, name) for name in public_names(_attacks)]
_exported = [kind for kind in _public if not inspect.isabstract(kind)]
_further = [kind for kind in classes_in(_attacks, Attack) if hasattr(kind, "name") and kind not in _exported]
KNOWN: list[type[Attack]] = []
"""Every attack of this package: those that it exports first, variants after their attack."""
for _kind in [*_exported, *_further]:
    KNOWN += [_kind, *variants_of(_kind).values()]
check_distinct(KNOWN)
REGISTRY: dict[str, type[Attack]] = {f"{kind.family}/{kind.name}": kind for kind in KNOWN if kind.listed}
"""The attacks that are listed and audited, by ``family/name``."""


def find(name: str) -> type[Attack]:
    """The class of an attack.

    Args:
        name: a name, such as ``direction`` or ``fingerprint-linked``, or the name of a class; ``family/name`` where
            several families have one of that name; or the path of a class, such as ``my_package.MyAttack``, with
            ``-KEY`` for a variant of it.

    Raises:
        InputError: no attack has that name, or more than one.
    """
    if "." in name:
        return _imported(name)
    family, _, short = name.rpartition("/")
    kinds = [kind for kind in KNOWN if family in ("", kind.family)]
    fitting = [kind for kind in kinds if short in (*kind.names(), kind.__name__)]
    if not fitting:
        names: list[str] = []
        for kind in KNOWN:
            names += kind.names()
        raise named.unknown_name("the name of an attack, or the path of its class", name, [*names, *REGISTRY])
    if len(fitting) > 1:
        full_names = [f"{kind.family}/{short}" for kind in fitting]
        raise InputError(
            expected="a name that one attack has",
            found=f"{short!r}, which {' and '.join(map(_path, fitting))} have",
            way_out=f"Give the family too: {' or '.join(full_names)}.",
        )
    return fitting[0]


def make_attack(
    attack: Attack | str, arguments: Mapping[str, Any] | None = None, *, others: Collection[str] = ()
) -> Attack:
    """Returns an attack as it is, or makes it from its name or class path.

    Args:
        attack: the attack, or its name.
        arguments: of its constructor, where it is a name; None for its defaults.
        others: names that may stand next to the arguments, to be suggested where one is misspelt.

    Raises:
        InputError: no attack has that name, or it does not take these arguments, or needs others.
    """
    if isinstance(attack, Attack):
        return attack
    return named.build(find(attack), arguments, where=f"the attack {attack}", option="--attack.", also_known=others)


def chosen_attacks(
    only: Sequence[Attack | str] | None = None, also: Sequence[Attack | str] = (), *, published: bool = False
) -> list[Attack]:
    """The attacks of an audit: those of this project with some others, or some alone.

    Args:
        only: the attacks, or their names; None for all that are listed.
        also: further attacks, or their names. One of a class that is listed takes the place of that with the default
            arguments.
        published: whether those of this project include attacks that are there for comparison, see
            `Attack.for_comparison`; by their names they are always among the attacks.

    Raises:
        InputError: both are given, no attack has one of the names, or results could not be distinguished.
    """
    if only is not None:
        both = ", ".join(str(getattr(attack, "name", attack)) for attack in also)
        require(not also, "attacks to run alone (only), or to add (also)", f"both, also {both}", "Name all with only.")
        chosen = [make_attack(attack) for attack in only]
    else:
        added = {type(attack): attack for attack in map(make_attack, also)}
        chosen = []
        for kind in REGISTRY.values():
            if published or not kind.for_comparison:
                # An attack that is added with other arguments takes the place of its class.
                attack = added.pop(kind) if kind in added else kind()
                chosen.append(attack)
        chosen += added.values()
    check_distinct([type(attack) for attack in chosen])
    return chosen


def published_beside(attacks: Collection[Attack]) -> list[Attack]:
    """Attacks of this project that are there for comparison and not among some others, see `chosen_attacks`."""
    chosen = {type(attack) for attack in attacks}
    return [kind() for kind in REGISTRY.values() if kind.for_comparison and kind not in chosen]


def _imported(path: str) -> type[Attack]:
    path, _, key = path.partition("-")
    kind = class_at(path, Attack)
    variants = variants_of(kind)
    if key and key not in variants:
        raise named.unknown_name(f"the key of a variant of {path}", key, variants)
    if key:
        return variants[key]
    return kind
