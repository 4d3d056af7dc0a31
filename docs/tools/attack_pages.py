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
from fedleak.core.bibliography import whole_reference
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
    texts = {"index.md": _choose(families)}
    for family, kinds in families.items():
        texts[f"{family}.md"] = _family(family, kinds)
    for family in families:
        svg, _ = _figure(family)
        if svg:
            texts[f"{family}.svg"] = svg
    return texts


def _families() -> dict[str, list[type[Attack]]]:
    """Attacks by family, both in the order of the registry."""
    families: dict[str, list[type[Attack]]] = {}
    for kind in REGISTRY.values():
        families.setdefault(kind.family, []).append(kind)
    return families


def _choose(families: dict[str, list[type[Attack]]]) -> str:
    """Page to choose an attack: by question, by what the recording holds, and by threat model."""
    question_rows = []
    for family, kinds in families.items():
        roles = [_kind(kind) for kind in kinds]
        question_rows.append(
            (
                f"{{doc}}`{family}`",
                "; ".join(dict.fromkeys(kind.estimates.inferred for kind in kinds)),
                ", ".join(str(roles.count(role)) for role in _KINDS),
                ", ".join(f"`{kind.name}`" for kind in kinds if kind.exact),
            )
        )
    threat_rows = []
    for kind in REGISTRY.values():
        threat_rows.append(
            (
                _link(kind),
                _how(kind),
                kind.threat_model.sees,
                kind.threat_model.knows,
                ", ".join(kind.public_names().names),
                kind.cost,
            )
        )
    parts = [
        "# Choose an attack",
        f"{len(REGISTRY)} attacks and baselines, by question. This page is made from the attacks' own descriptions, as"
        " `fedleak list --all` is. `fedleak audit` runs every attack that fits a recording and names those that do not,"
        " with what they lack, so the choice is often one of what to record. Published attacks that are nowhere ahead"
        " of every other in the published results run only with `--published`.",
        "## By question",
        table(("Family", "The server infers", "Published, ours, baselines", "Exact"), question_rows),
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
        table(("Attack", "Kind", "Sees", "Knows", "Taxonomies", "Cost"), threat_rows),
        "```{toctree}\n:hidden:\n\n" + "\n".join(families) + "\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _recorded() -> str:
    """Table of what each attack needs of a recording, those first that need least."""
    used: set[str] = set()
    for kind in REGISTRY.values():
        used.update(kind.threat_model.fields)
    fields = [name for name in _FIELDS if name in used]
    fields += sorted(used - set(_FIELDS))
    rows = []
    for kind in REGISTRY.values():
        if not kind.baseline:
            ticks = ["✓" if name in kind.threat_model.fields else "" for name in fields]
            rows.append((_link(kind), kind.family, *ticks))
    header = ("Attack", "Family", *(_FIELDS.get(name, name).capitalize() for name in fields))
    return table(header, sorted(rows, key=lambda row: row.count("✓")))


def _family(family: str, kinds: Sequence[type[Attack]]) -> str:
    """Page of a family: its own text, the published numbers with their figure, then a section for each attack."""
    inferred = "; ".join(dict.fromkeys(kind.estimates.inferred for kind in kinds))
    parts = [f"# {family.capitalize()}", f"*The server can infer from a client's update {inferred}.*"]
    family_text = own_text(family)
    if family_text:
        parts.append(family_text)
    numbers = _numbers(family)
    _, caption = _figure(family)
    if numbers:
        parts.append("## Numbers")
        if caption:
            parts.append(f"```{{figure}} {family}.svg\n\n{caption}\n```")
        parts.append(numbers)
    attacks = [kind for kind in kinds if not kind.baseline]
    baselines = [kind for kind in kinds if kind.baseline]
    for title, listed in (("## Attacks", attacks), ("## Baselines", baselines)):
        if listed:
            parts += [title, *map(_attack, listed)]
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
    """Section of an attack: its facts, its docstring, and how to run it."""
    metrics = [getattr(entry, "name", entry) for entry in kind.estimates.metrics]
    facts = {
        "Kind": _how(kind),
        "Sees": kind.threat_model.sees,
        "Knows": kind.threat_model.knows,
        **_taxonomies(kind),
        "Needs": ", ".join(f"`{need}`" for need in kind.threat_model.described_needs),
        "Cost": kind.cost,
        "Metrics": ", ".join(f"`{name}`" for name in metrics),
        "Published in": "; ".join(map(whole_reference, kind.references)),
        "In an audit": "with `--published`" if kind.for_comparison else "",
    }
    return "\n\n".join(
        [
            f"({_target(kind)})=\n### {kind.name}",
            table(("", ""), [(title, fact) for title, fact in facts.items() if fact]),
            _described(kind),
            _example(kind),
        ]
    )


def _example(kind: type[Attack]) -> str:
    """How to run it on a recording, with the default of its first arguments."""
    # A name that two families share does not say which attack it is; the path of the class does.
    same_name = [attack for attack in REGISTRY.values() if attack.name == kind.name]
    name = kind.name if len(same_name) == 1 else f"{kind.__module__}.{kind.__name__}"
    fields: Sequence[dataclasses.Field[Any]] = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    arguments = []
    for field in fields:
        if isinstance(field.default, int | float | str) and not isinstance(field.default, bool):
            arguments.append(f"--attack.{field.name} {field.default}")
    command = " ".join(["fedleak run runs/NAME/deltas --attack", name, *arguments[:2]])
    return f"Run it on a recording, here with its defaults:\n\n```\n{command}\n```"


def _taxonomies(kind: type[Attack]) -> dict[str, str]:
    """Names of an attack by the title of the taxonomy."""
    names = kind.public_names()
    return {
        "NIST AI 100-2": names.nist or "none fits",
        "MITRE ATLAS": names.atlas or "none fits",
        "OWASP AISVS": names.aisvs or "none fits",
        "[Threat model](../../theory/taxonomies.md)": names.letter or "none fits",
    }


def _described(kind: type[Attack]) -> str:
    """The docstring; of a variant the values in which it differs from the attack that explains it."""
    if kind.variant_of is None or kind.variant_key is None:
        return f"```{{eval-rst}}\n.. autoclass:: {kind.__module__}.{kind.__name__}\n```"
    options = []
    for name, value in kind.variants[kind.variant_key].items():
        if name not in ("name", "cost", "threat_model"):
            options.append(f"`{name} = {value!r}`")
    return f"Variant of {_link(kind.variant_of)} with {', '.join(options)}."


def _numbers(family: str) -> str:
    """One row per published table, attack and judged metric: ours and the paper's."""
    rows = []
    for table_name, results in _results().items():
        of_family = results[results["family"] == family]
        # Of the metrics that judge attacks, the first in the order of the metrics' table.
        metrics = set(of_family["metric"])
        judged = [name for name, entry in METRICS.items() if entry.judged and name in metrics]
        of_family = of_family[of_family["metric"].isin(judged[:1])]
        for name, cells in of_family.groupby("attack", sort=False):
            rows.append(
                (
                    f"`{table_name}`",
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
    """The smallest and the largest of some numbers; one where they print alike, none where there is none."""
    numbers = pd.to_numeric(pd.Series(values), errors="coerce").dropna()
    if numbers.empty:
        return ""
    least = f"{numbers.min():.{digits}f}"
    most = f"{numbers.max():.{digits}f}"
    if least == most:
        return least
    return f"{least} to {most}"


def _kind(kind: type[Attack]) -> str:
    if kind.baseline:
        return "baseline"
    if kind.references:
        return "published"
    return "ours"


def _how(kind: type[Attack]) -> str:
    if kind.baseline:
        return "baseline"
    guarantee = "exact" if kind.exact else "statistical"
    return f"{_kind(kind)}, {guarantee}"


def _target(kind: type[Attack]) -> str:
    return f"attack-{kind.family}-{kind.name}"


def _link(kind: type[Attack]) -> str:
    return f"[{kind.name}](#{_target(kind)})"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Table in Markdown."""
    markdown_rows = []
    for row in (header, ["---"] * len(header), *rows):
        cells = [cell.replace("|", "\\|") for cell in row]
        markdown_rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(markdown_rows)
