"""How a JSON or YAML file can be written otherwise: codings, dialects, look-alikes, values of another format."""

import json
import random
from collections.abc import Callable
from typing import Any

import yaml

from tests.fuzz.mutations import Changed, at, change_bytes, change_value, places_of

OTHER_DIGITS = str.maketrans("0123456789", "０１２３４５６７８９")  # noqa: RUF001 - digits that look alike are the point
"""Digits that Python's `int` reads and JSON does not have."""
LOOK_ALIKES = str.maketrans("aeo", "аео")  # noqa: RUF001 - Cyrillic letters, the point
_JSON_WORDS = [
    *("1E400", "-0", "01", "1.", ".5", "0x10", "NaN", "Infinity", "'x'", "undefined", '"\\ud800"', "1e-400", "tru"),
    *("12345678901234567890123", "[[[[[[1]]]]]]", '{"a":1,"a":2}'),
]
_YAML_WORDS = [
    *("!!python/object/apply:os.system ['touch x']", "!!binary aGVsbG8=", "!!set {a, b}", "!!timestamp 2020-01-01"),
    *("2020-01-01", "1:30", "1:1:1:1.5", "0o17", "0x1F", "1_000", ".inf", "-.inf", ".nan", "~", "no", "on", "NULL"),
    *("1e400", "+.1", "1.", "&a [*a]", "{<<: {a: 1}}", "? [a, b]\n: c", "|\n  text\n", ">-\n  x", "'it''s'", "=", "<<"),
    *('"\\x00"', '"\\ud800"', '"\\UFFFFFFFF"', "!<tag:yaml.org,2002:str> 5", "!!str 5", "!!int '7'", "!!int ''"),
    *("!!float 3", "!!float x", "!!bool x", "!!null ''", "!!omap [a]", "0b101", "190:20:30", "12e03", "-0.0"),
]


def change_plain(value: Any, draws: random.Random, *, as_yaml: bool = False) -> Changed:
    """A JSON or YAML file of a value with one to three changes: of its structure, its types, or how it is written."""
    if draws.random() < 0.35:
        return change_writing(written(value, as_yaml=as_yaml), draws, as_yaml=as_yaml)
    said = []
    for _ in range(draws.choice([1, 1, 1, 2, 3])):
        change = change_value if draws.random() < 0.5 else change_type
        if isinstance(value, dict | list) and value:
            value, one = change(value, draws)
            said.append(one)
    return written(value, as_yaml=as_yaml), ", ".join(said)


def written(value: Any, *, as_yaml: bool = False) -> bytes:
    """A JSON or YAML file of a value; raises a ValueError where the format has no such value."""
    if not as_yaml:
        return json.dumps(value, indent=1).encode("utf-8", "surrogatepass")
    try:
        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from None


def change_type(value: Any, draws: random.Random) -> Changed | tuple[Any, str]:
    """One value as another type that means the same, a name that looks alike, or a list that is repeated."""
    value = json.loads(json.dumps(value, default=str))
    place = draws.choice([place for place in places_of(value) if place])
    parent, key = at(value, place[:-1]), place[-1]
    old, way = parent[key], draws.choice(["type", "type", "type", "name", "name", "repeat", "size"])
    if way == "name" and isinstance(key, str):
        parent[_like(key, draws)] = parent.pop(key)
    elif way == "repeat" and isinstance(old, list):
        parent[key] = old * draws.choice([2, 3, 1000])
    elif way == "size" and type(old) in (int, float):
        parent[key] = old * draws.choice([10, 1e-9, 1e9, 0, 2**40])
    elif isinstance(old, str) and draws.random() < 0.5:
        parent[key] = draws.choice([old.swapcase(), old.translate(LOOK_ALIKES), f"{old} ", f"\u200b{old}"])
    else:
        parent[key] = _other_type(old, draws)
    return value, f"{way} {'/'.join(map(str, place))[:80]}"


def _like(name: str, draws: random.Random) -> str:
    """A name that a person may take for the same."""
    alike = [name.upper(), f"{name} ", f" {name}", f"{name}\u200b", name.translate(LOOK_ALIKES), name[:-1], "__proto__"]
    return draws.choice(alike)


def _other_type(old: Any, draws: random.Random) -> Any:
    if isinstance(old, bool):
        return draws.choice([int(old), str(old), str(old).lower()])
    if isinstance(old, int):
        return draws.choice([float(old), str(old), bool(old), str(old).translate(OTHER_DIGITS)])
    if isinstance(old, float):
        return draws.choice([str(old), [old], repr(old).encode().hex()])
    if isinstance(old, str):
        return draws.choice([[old], len(old), old.translate(OTHER_DIGITS), old.encode().hex(), {"value": old}])
    if isinstance(old, list):
        return {str(number): part for number, part in enumerate(old)}
    if isinstance(old, dict):
        return [list(pair) for pair in old.items()]
    return draws.choice([False, 0, "", "null"])


_CODINGS: dict[str, Callable[[str], bytes]] = {
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-32": lambda text: text.encode("utf-32-be"),
    "Latin-1": lambda text: text.replace("a", "ä", 1).encode("latin-1", "replace"),
    "carriage returns": lambda text: text.replace("\n", "\r").encode(),
    "line separators": lambda text: text.replace("\n", "\u2028").encode(),
    "tabs": lambda text: text.replace("  ", "\t").encode(),
    "other digits": lambda text: text.translate(OTHER_DIGITS).encode(),
    "a lone surrogate": lambda text: text.encode().replace(b":", b": \xed\xa0\x80", 1),
    "zero in the middle": lambda text: (text[: len(text) // 2] + "\0" + text[len(text) // 2 :]).encode(),
    "single quotes": lambda text: text.replace('"', "'").encode(),
    "a long number": lambda text: text.replace("1", "1" * 5000, 1).encode(),
}
_JSON_FORMS: dict[str, Callable[[str], str]] = {
    "brackets": lambda text: text.replace(":", ": " + "[" * 3000 + "]" * 3000, 1),
    "NaN": lambda text: text.replace("0", "NaN", 1),
    "a key twice": lambda text: text.replace("{", '{"format": 1, "format": 2,', 1),
    "more after the end": lambda text: text + "\n{}",
}
_YAML_FORMS: dict[str, Callable[[str], str]] = {
    "brackets": lambda text: text + "\nz: " + "[" * 3000 + "]" * 3000,
    "aliases": lambda text: bomb("a{0}: &a{0} [{1}]\n") + text,
    "merge keys": lambda text: bomb("a{0}: &a{0} {{<<: [{1}]}}\n", "{k: 1}") + text,
    "merged": lambda text: text + "\n<<: {format: 1, max_norm: 1.0e9}\n",
    "two documents": lambda text: text + "\n---\n" + text,
    "directive": lambda text: "%YAML 1.2\n---\n" + text,
    "tag": lambda text: text + "\n...\n%TAG ! tag:x\n",
}


def bomb(level: str, first: str = "[x, x]") -> str:
    """YAML of twelve levels, each of which repeats the one below ten times."""
    levels = [level.format(number, ", ".join([f"*a{number - 1}"] * 10)) for number in range(1, 12)]
    return f"a0: &a0 {first}\n{''.join(levels)}"


def change_writing(content: bytes, draws: random.Random, *, as_yaml: bool = False) -> Changed:
    """The same text in another coding or dialect, with a word of another format, spliced, or with other bytes."""
    text = content.decode("utf-8", "surrogatepass")
    forms = _YAML_FORMS if as_yaml else _JSON_FORMS
    how = draws.choice([*_CODINGS, *forms, "word", "word", "word", "splice", "bytes", "bytes", "cut"])
    if how in _CODINGS:
        return _CODINGS[how](text), how
    if how in forms:
        return forms[how](text).encode("utf-8", "surrogatepass"), how
    if how == "bytes":
        return change_bytes(content, draws, text=True)
    if how == "cut":
        return content[: draws.randrange(len(content))], how
    if how == "splice":
        first, second = draws.randrange(len(text) + 1), draws.randrange(len(text) + 1)
        return (text[:first] + text[second:]).encode("utf-8", "surrogatepass"), how
    lines = text.split("\n")
    number, word = draws.randrange(len(lines)), draws.choice(_YAML_WORDS if as_yaml else _JSON_WORDS)
    comma = "," if lines[number].rstrip().endswith(",") else ""
    lines[number] = f"{lines[number].split(':')[0]}: {word}{comma}"
    return "\n".join(lines).encode("utf-8", "surrogatepass"), f"{word[:20]!r} in line {number + 1}"
