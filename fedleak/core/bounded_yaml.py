"""YAML of files that strangers may have written: bounded in depth and in number of values, before anything is built."""

import re
from collections import Counter
from typing import Any

import yaml

_DEEPEST = 64
"""Levels of nesting. Python's parser is quadratic in them, and recursive."""
_MOST_VALUES = 2 * 10**6
"""Values of a file, as of JSON (`fedleak_recorder.plain_values`). An alias counts as all that it repeats, so that
neither aliases nor merge keys can multiply a short file."""
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
"""Of UTF-16, e.g. of the escape ``\\ud800``; no file, path or page can hold a text with it."""


class BoundedLoader(yaml.SafeLoader):
    r"""Safe loader that refuses a file whose values are nested too deeply, are too many, or hold themselves.

    An alias counts as the values that it repeats. A merge key (``<<``) copies what its aliases name, hence the same
    bound holds for it.

    >>> yaml.load("a: &a {x: 1}\nb: {<<: *a, y: 2}", BoundedLoader)
    {'a': {'x': 1}, 'b': {'x': 1, 'y': 2}}
    >>> yaml.load("&a [*a]", BoundedLoader)
    Traceback (most recent call last):
    ...
    yaml.composer.ComposerError: values that hold themselves
      in "<unicode string>", line 1, column 5:
        &a [*a]
            ^
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._depth = 0
        self._values = 0
        self._values_of: dict[yaml.Node, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next value with all that is in it, counted."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        # The depth is checked before the parser goes deeper, the number of values after it comes back.
        if self._depth > _DEEPEST:
            self._refuse("values that are nested too deeply", event)
        values_before = self._values
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        assert node is not None
        if not isinstance(event, yaml.AliasEvent):
            self._values += 1
            self._values_of[node] = self._values - values_before
        elif node in self._values_of:
            # An alias counts as all that its anchor's value holds.
            self._values += self._values_of[node]
        else:  # its anchor's value is not yet whole
            self._refuse("values that hold themselves", event)
        if self._values > _MOST_VALUES:
            self._refuse(f"more than {_MOST_VALUES} values, with the repetitions of aliases", event)
        if isinstance(node, yaml.ScalarNode) and _HALF_CHARACTER.search(node.value):
            self._refuse(f"half a character in {node.value[:60]!a}", event)
        return node

    def _refuse(self, problem: str, event: Any) -> None:
        raise yaml.composer.ComposerError(None, None, problem, event.start_mark)


def _number(loader: BoundedLoader, node: yaml.ScalarNode) -> int | float:
    """A number in the bases that Python has.

    YAML reads ``1:30`` as 90, and a text of colons takes quadratic time or exceeds what a float can hold.
    """
    if ":" in node.value:
        raise ValueError(f"{node.value[:60]!r} without quotes in line {node.start_mark.line + 1}, a number of base 60")
    if node.tag.endswith(":float"):
        return loader.construct_yaml_float(node)
    return loader.construct_yaml_int(node)


for _kind in ("int", "float"):
    BoundedLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _number)


class PlainLoader(BoundedLoader):
    """Bounded loader of what JSON could hold as well: no merge key, no key twice, and dates stay texts.

    >>> yaml.load("date: 2026-11-27", PlainLoader)
    {'date': '2026-11-27'}
    >>> yaml.load("{a: 1, a: 2}", PlainLoader)
    Traceback (most recent call last):
    ...
    ValueError: the key 'a' twice in line 1
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 - as its base class has it
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys stand once."""
        # Keys that are lists or mappings are refused later, by the base class, because they cannot be hashed.
        counts = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        most_frequent = max(counts, key=counts.__getitem__, default="")
        if counts[most_frequent] > 1:
            line = node.start_mark.line + 1
            raise ValueError(f"the key {most_frequent[:60]!r} twice in line {line}")
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Refuses a merge key, which would be replaced here by the keys that it names."""
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise ValueError(f"a merge key (<<) in line {key.start_mark.line + 1}")


def load_yaml(text: str, *, plain: bool = False) -> Any:
    """The value of a YAML text.

    Args:
        text: the content of a file, or a value of the command line.
        plain: whether `PlainLoader` reads it rather than `BoundedLoader`.

    Raises:
        ValueError: it is no YAML, or exceeds the bounds; the message is one line, with the place.
    """
    loader = PlainLoader if plain else BoundedLoader
    try:
        return yaml.load(text, loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except (LookupError, OverflowError, AttributeError) as error:  # as of `!!bool x`, `!!int ""` and "\UFFFFFFFF"
        raise ValueError(f"a value that its tag cannot have ({error})") from None
