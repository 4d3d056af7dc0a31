"""Pages of the documentation that describe the attacks, from what the attacks say of themselves.

``pages`` gives Markdown for Sphinx: a page to choose an attack, and a page for each family, with a section per attack.
A family's formula, and when its attacks are exact or fail, is in ``docs/families/NAME.md``, if there is such a file;
numbers are those of ``docs/results``. No attack is named here, so that a new one is on the pages as soon as its file is
in the folder of its family.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from docs.tools.family_figures import family_figure
from fedleak.core.attack import Attack
from fedleak.core.errors import InputError
from fedleak.core.metric_table import METRICS
from fedleak.evaluation.registry import REGISTRY
from fedleak.evaluation.run import read_published

ROOT = Path(__file__).resolve().parents[2]
FAMILIES = ROOT / "docs" / "families"
RESULTS = ROOT / "docs" / "results"
SECTIONS = ("## Formula", "## When it is exact", "## When it fails")
"""What a family's own text says."""
_KINDS = ("published", "ours", "baseline")
_FIELDS = {
    "deltas": "updates",
    "model": "global model",
    "learner": "learner",
    "auxiliary": "examples of the server's own",
    "priors": "priors",
    "served": "items served",
    "lists": "lists shown",
    "features": "features sent",
    "known": "known users",
    "pairs": "pairs of messages",
    "sent_in": "round of each message",
    "releases": "declared noise",
}
"""What the fields of a server view are in words; others have their own name."""


def is_listed(thing: object) -> bool:
    """Whether it is an attack that has a section on the page of its family."""
    return any(thing is kind for kind in REGISTRY.values())


def pages() -> dict[str, str]:
    """Text of each page by file name."""
    families = _families()
    return {
        "index.md": _choose(families),
        **{f"{family}.md": _family(family, kinds) for family, kinds in families.items()},
        **{f"{family}.svg": drawn for family in families if (drawn := _figure(family)[0])},
    }


def _families() -> dict[str, list[type[Attack]]]:
    found: dict[str, list[type[Attack]]] = {}
    for kind in REGISTRY.values():
        found.setdefault(kind.family, []).append(kind)
    return found


def _choose(families: dict[str, list[type[Attack]]]) -> str:
    parts = [
        "# Choose an attack",
        f"{len(REGISTRY)} attacks and baselines, by question. This page is made from the attacks' own descriptions, as"
        " `fedleak list --all` is. `fedleak audit` runs every attack that fits a recording and names those that do not,"
        " with what they lack, so the choice is often one of what to record. Published attacks that are nowhere ahead"
        " of every other in the published results run only with `--published`.",
        "## By question",
        table(
            ("Family", "The server infers", "Published, ours, baselines", "Exact"),
            [
                (
                    f"{{doc}}`{family}`",
                    "; ".join(dict.fromkeys(kind.estimates.inferred for kind in kinds)),
                    ", ".join(str(sum(_kind(kind) == role for kind in kinds)) for role in _KINDS),
                    ", ".join(f"`{kind.name}`" for kind in kinds if kind.exact),
                )
                for family, kinds in families.items()
            ],
        ),
        "*Exact*: attacks that solve for the answer where theory guarantees one. A *baseline* is a simple answer,"
        " mostly without the client's update; an attack shows a leak where it infers more than the best baseline.",
        "## By what the recording holds",
        "An attack runs if the recording holds all that is ticked in its row.",
        _recorded(),
        "Where these come from: [recording format](../../reference/recording-format.md). A *learner* rebuilds the"
        " clients' training; the auditor can give one for a network of his own, see"
        " [own network](../../audit/own-network.md). *Examples of the server's own* are the recording's `auxiliary`.",
        "## Threat models",
        "*Taxonomies*: names in NIST AI 100-2, MITRE ATLAS and OWASP AISVS, where one fits, and the letter of the"
        " threat model, see [taxonomies](../../theory/taxonomies.md).",
        table(
            ("Attack", "Kind", "Sees", "Knows", "Taxonomies", "Cost"),
            [
                (
                    _link(kind),
                    _how(kind),
                    kind.threat_model.sees,
                    kind.threat_model.knows,
                    ", ".join(kind.public_names().names),
                    kind.cost,
                )
                for kind in REGISTRY.values()
            ],
        ),
        "```{toctree}\n:hidden:\n\n" + "\n".join(families) + "\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _recorded() -> str:
    used = {name for kind in REGISTRY.values() for name in kind.threat_model.fields}
    fields = [*(name for name in _FIELDS if name in used), *sorted(used - set(_FIELDS))]
    rows = []
    for kind in REGISTRY.values():
        if not kind.baseline:
            held = kind.threat_model.fields
            rows.append((_link(kind), kind.family, *("✓" if name in held else "" for name in fields)))
    header = ("Attack", "Family", *(_FIELDS.get(name, name).capitalize() for name in fields))
    return table(header, sorted(rows, key=lambda row: row.count("✓")))


def _family(family: str, kinds: Sequence[type[Attack]]) -> str:
    inferred = "; ".join(dict.fromkeys(kind.estimates.inferred for kind in kinds))
    parts = [f"# {family.capitalize()}", f"*The server can infer from a client's update {inferred}.*"]
    parts += filter(None, [own_text(family)])
    numbers, caption = _numbers(family), _figure(family)[1]
    if numbers:
        drawn = [f"```{{figure}} {family}.svg\n\n{caption}\n```"] if caption else []
        parts += ["## Numbers", *drawn, numbers]
    for title, listed in (
        ("## Attacks", [kind for kind in kinds if not kind.baseline]),
        ("## Baselines", [kind for kind in kinds if kind.baseline]),
    ):
        if listed:
            parts += [title, *(_attack(kind) for kind in listed)]
    return "\n\n".join(parts) + "\n"


def own_text(family: str) -> str:
    """What ``docs/families`` says of a family; empty if it has no file there.

    Raises:
        InputError: its file lacks a section.
    """
    file = FAMILIES / f"{family}.md"
    if not file.is_file():
        return ""
    text = file.read_text(encoding="utf-8").strip()
    lacking = [section for section in SECTIONS if section not in text]
    if lacking:
        raise InputError(
            expected=f"docs/families/{family}.md with the sections {', '.join(SECTIONS)}",
            found=f"none of {', '.join(lacking)}",
            way_out="Write them in a few sentences.",
        )
    return text.replace("](../", "](../../")  # the page is a folder deeper


def _attack(kind: type[Attack]) -> str:
    facts = [
        ("Kind", _how(kind)),
        ("Sees", kind.threat_model.sees),
        ("Knows", kind.threat_model.knows),
        *((title, name or "none fits") for title, name in _taxonomies(kind)),
        ("Needs", ", ".join(f"`{need}`" for need in kind.threat_model.described_needs)),
        ("Cost", kind.cost),
        ("Metrics", ", ".join(f"`{getattr(entry, 'name', entry)}`" for entry in kind.estimates.metrics)),
        ("Published in", "; ".join(kind.references)),
        ("In an audit", "with `--published`" if kind.for_comparison else ""),
    ]
    return "\n\n".join(
        [
            f"({_target(kind)})=\n### {kind.name}",
            table(("", ""), [fact for fact in facts if fact[1]]),
            _described(kind),
            _example(kind),
        ]
    )


def _example(kind: type[Attack]) -> str:
    """How to run it on a recording, with the default of its first arguments."""
    shared = [other for other in REGISTRY.values() if other.name == kind.name]
    name = kind.name if len(shared) == 1 else f"{kind.__module__}.{kind.__name__}"
    own: Sequence[dataclasses.Field[Any]] = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    given = [
        f"--attack.{field.name} {field.default}"
        for field in own
        if isinstance(field.default, int | float | str) and not isinstance(field.default, bool)
    ]
    line = " ".join(["fedleak run runs/NAME/deltas --attack", name, *given[:2]])
    return f"Run it on a recording, here with its defaults:\n\n```\n{line}\n```"


def _taxonomies(kind: type[Attack]) -> list[tuple[str, str | None]]:
    names = kind.public_names()
    titles = ("NIST AI 100-2", "MITRE ATLAS", "OWASP AISVS", "[Threat model](../../theory/taxonomies.md)")
    return list(zip(titles, (names.nist, names.atlas, names.aisvs, names.letter), strict=True))


def _described(kind: type[Attack]) -> str:
    """The docstring; of a variant the values in which it differs from the attack that explains it."""
    if kind.variant_of is None or kind.variant_key is None:
        return f"```{{eval-rst}}\n.. autoclass:: {kind.__module__}.{kind.__name__}\n```"
    values = kind.variants[kind.variant_key]
    options = {name: value for name, value in values.items() if name not in ("name", "cost", "threat_model")}
    return f"Variant of {_link(kind.variant_of)} with {', '.join(f'`{n} = {v!r}`' for n, v in options.items())}."


def _numbers(family: str) -> str:
    """One row per published table, attack and judged metric: ours and the paper's."""
    rows = []
    for published, own in _results().items():
        own = own[own["family"] == family]
        judged = [name for name, entry in METRICS.items() if entry.judged and name in set(own["metric"])]
        own = own[own["metric"].isin(judged[:1])]
        for name, cells in own.groupby("attack", sort=False):
            rows.append(
                (
                    f"`{published}`",
                    f"`{name}`",
                    f"`{judged[0]}`",
                    str(len(cells)),
                    _span(cells["mean"]),
                    _span(cells["paper"]),
                    _span(cells["n"], digits=0),
                )
            )
    if not rows:
        return ""
    header = ("Table", "Attack", "Metric", "Settings", "Here", "The paper", "n")
    note = (
        "Means of the published tables, least to greatest over their settings (data, rounds, defences); the paper's"
        " values of the same settings, where it has any. [Results](../../results.md) has every setting with its"
        " interval, the baselines and what differs from the paper."
    )
    return f"{note}\n\n{table(header, rows)}"


@functools.cache
def _figure(family: str) -> tuple[str, str]:
    rows = pd.concat(_results().values(), ignore_index=True)
    return family_figure(rows[rows["family"] == family])


@functools.cache
def _results() -> dict[str, pd.DataFrame]:
    return {file.stem: read_published(file).results for file in sorted(RESULTS.glob("*.json"))}


def _span(values: Any, digits: int = 3) -> str:
    known = pd.to_numeric(pd.Series(values), errors="coerce").dropna()
    if known.empty:
        return ""
    least, most = f"{known.min():.{digits}f}", f"{known.max():.{digits}f}"
    return least if least == most else f"{least} to {most}"


def _kind(kind: type[Attack]) -> str:
    return "baseline" if kind.baseline else "published" if kind.references else "ours"


def _how(kind: type[Attack]) -> str:
    return "baseline" if kind.baseline else f"{_kind(kind)}, {'exact' if kind.exact else 'statistical'}"


def _target(kind: type[Attack]) -> str:
    return f"attack-{kind.family}-{kind.name}"


def _link(kind: type[Attack]) -> str:
    return f"[{kind.name}](#{_target(kind)})"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
