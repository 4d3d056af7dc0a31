"""Page of the documentation on what a server can do and who would notice, from what `fedleak/server/` says of itself.

No deviation is named here, so that a new one is on the page as soon as its file is there.
"""

from typing import get_args

from docs.tools.attack_pages import table
from fedleak import server
from fedleak.core.bibliography import whole_reference
from fedleak.core.class_paths import classes_in
from fedleak.server.deviation import Deviation, Part

_TITLES: dict[Part, str] = {
    "shows": "What it shows: features and images",
    "sends": "What it sends: models",
    "selects": "Whom it selects",
}
_START = """# What a server can do, and who would notice

An honest server shows every client the real items, sends every client the same global model, draws each cohort at
random, and only averages. The classes in `fedleak/server/` are what else a server may do here. This page is made from
their descriptions; `model.manipulation`, `model.probing` and `data.repeated_selection` of a training name them.

An auditor with a log of what the server sent, and to whom, notices each of them by comparing it with the real items,
the global model and random cohorts; the tables name what else would be noticed. A check of a client compares what it
received with what honest peers received, see
[pitfalls](../../start/pitfalls.md#checks-of-features-assume-honest-references).

The *threat model* is a letter of the [taxonomies](../../theory/taxonomies.md), of the weakest adversary who may do
it."""


def pages() -> dict[str, str]:
    """Text of the page by file name."""
    kinds = classes_in(server, Deviation)
    parts = [_START]
    for part in get_args(Part):
        rows = []
        for kind in kinds:
            if kind.part == part:
                rows.append((_link(kind), kind.does, _letter(kind), _noticed(kind), _origin(kind)))
        header = ("Deviation", "The server", "Threat model", "Who would notice", "Defined in")
        parts += [f"## {_TITLES[part]}", table(header, rows)]
    parts += ["## Classes", *map(_section, kinds)]
    return {"index.md": "\n\n".join(parts) + "\n"}


def _letter(kind: type[Deviation]) -> str:
    return kind.public_names().letter or "none fits"


def _noticed(kind: type[Deviation]) -> str:
    """Who would notice a deviation, how, and by which checks of this project."""
    notices = []
    for notice in kind.noticed:
        text = f"**{notice.who}**: {notice.how}"
        if notice.checks:
            checks = ", ".join(f"`{check.__name__}`" for check in notice.checks)
            text += f" ({checks})"
        notices.append(text)
    return "; ".join(notices) or "nobody"


def _origin(kind: type[Deviation]) -> str:
    return "; ".join(map(whole_reference, kind.references)) or "this project"


def _section(kind: type[Deviation]) -> str:
    directive = f"```{{eval-rst}}\n.. autoclass:: {kind.__module__}.{kind.__name__}\n```"
    return f"({_target(kind)})=\n### {kind.__name__}\n\n{directive}"


def _link(kind: type[Deviation]) -> str:
    return f"[{kind.__name__}](#{_target(kind)})"


def _target(kind: type[Deviation]) -> str:
    return f"deviation-{kind.__name__}"
