"""The page on what a server can do has every deviation of `fedleak/server/`."""

import re

from docs.tools.server_page import pages
from fedleak import server
from fedleak.core.class_paths import classes_in
from fedleak.server.deviation import Deviation

PAGE = pages()["index.md"]


def test_every_deviation_is_on_the_page_with_who_would_notice() -> None:
    kinds = classes_in(server, Deviation)
    assert len(kinds) > 10
    for kind in kinds:
        (row,) = re.findall(rf"^\| \[{kind.__name__}\]\(#deviation-{kind.__name__}\) \|.*$", PAGE, re.MULTILINE)
        assert kind.does in row
        assert f"| {kind.public_names().letter} |" in row
        assert all(notice.how in row for notice in kind.noticed)
        assert PAGE.count(f".. autoclass:: {kind.__module__}.{kind.__name__}\n") == 1


def test_tables_are_rectangular() -> None:
    for block in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
