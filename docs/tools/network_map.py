"""Page of what can be inferred from which network, docs/start/your-network.md, from what attacks say that they need.

`make included` writes it, as ``python -m docs.tools.network_map`` does.
"""

from collections.abc import Iterable
from pathlib import Path

from docs.tools.attack_pages import table
from docs.tools.included_page import definition
from fedleak.client.algorithm import ClientAlgorithm
from fedleak.core.attack import Attack
from fedleak.core.io.files import write_whole
from fedleak.core.metric import Metric
from fedleak.core.metric_table import JUDGED_BY, METRICS
from fedleak.core.threat_model import Need, described_need
from fedleak.evaluation.registry import REGISTRY
from fedleak.recordings.named_algorithm import ALGORITHMS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "start" / "your-network.md"

_START = """# Your network, and what to fear

For whoever asks "we train this: what could the server learn?". Find your network; each row is something that could be
inferred of a client, with the attacks that an audit runs for it (slow ones with `--slow`), the metric that they are
judged by, and what a recording must hold. This page is made from the code by `make included`.

* `fedleak audit DIR` runs what your recording has the data for, and says of the rest what is missing.
* `fedleak list --fits DIR` lists them before.
* [Record your system](../audit/record-your-system.md) says how each entry of the last column is recorded; a network of
  your own is described in [own-network.md](../audit/own-network.md)."""

RECORDED = {
    "served": "the items that each client was served (`served`)",
    "lists": "the ranked lists (`lists`)",
    "features": "the features of the items (`features`)",
    "known": "messages whose senders are known (`known`)",
    "pairs": "pairs of messages (drawn by the audit)",
    "participants": "who took part in each sum (`participants`)",
    "releases": "the declared clip and noise (`releases`)",
    "sent_in": "several rounds",
    "model": "the model that was sent (`model`)",
    "algorithm": "how clients train (`learner`)",
}
"""What a recording must hold, in words, by the need of an attack."""


def page() -> str:
    """Text of the page."""
    sections = [
        _section(
            "Any network",
            "These attacks ask for no particular way of training; the last column says what an update must hold.",
            _of_any_network(),
        )
    ]
    for name, algorithm in sorted(ALGORITHMS.items()):
        attacks = _of_network(algorithm)
        if attacks:
            sections.append(_section(f"`{name}`", definition(algorithm), attacks))
    return "\n\n".join([_START, *sections]) + "\n"


def _networks(kind: type[Attack]) -> list[type]:
    """Kinds of training that an attack asks for."""
    return [need for need in kind.threat_model.needs if isinstance(need, type)]


def _of_any_network() -> list[type[Attack]]:
    return [kind for kind in _in_audits() if not _networks(kind)]


def _of_network(algorithm: type[ClientAlgorithm]) -> list[type[Attack]]:
    """Attacks that ask for what an algorithm is."""
    return [
        kind
        for kind in _in_audits()
        if _networks(kind) and all(issubclass(algorithm, network) for network in _networks(kind))
    ]


def _in_audits() -> list[type[Attack]]:
    return [kind for kind in REGISTRY.values() if not kind.baseline and not kind.for_comparison]


def _section(title: str, lead: str, attacks: Iterable[type[Attack]]) -> str:
    """A table with a row for each question."""
    by_question: dict[str, list[type[Attack]]] = {}
    for kind in attacks:
        by_question.setdefault(kind.estimates.inferred, []).append(kind)
    rows = [
        (inferred, ", ".join(map(_named, kinds)), metric_of(kinds[0]), recorded_for(kinds))
        for inferred, kinds in by_question.items()
    ]
    return f"## {title}\n\n{lead}\n\n" + table(("The server infers", "Attacks", "Metric", "What to record"), rows)


def _named(kind: type[Attack]) -> str:
    if kind.slow:
        return f"`{kind.name}` (slow)"
    return f"`{kind.name}`"


def metric_of(kind: type[Attack]) -> str:
    """The metric that a question is judged by, in its words where it has any."""
    estimates = kind.estimates
    judged = [name for name in estimates.metric_names() if METRICS[name].judged]
    names = JUDGED_BY.get(estimates.question()) or judged or estimates.metric_names()
    metric: Metric = METRICS[names[0]]
    words = metric.words.replace("{}", "n")
    return f"`{metric.name}`: {words}" if words else f"`{metric.name}`"


def recorded_for(kinds: Iterable[type[Attack]]) -> str:
    """What a recording must hold for the first of some attacks, and what others need besides."""
    parts: dict[str, None] = {}
    for kind in kinds:
        for need in kind.threat_model.needs:
            parts.setdefault(_recorded(need))
    return "; ".join(part for part in parts if part)


def _recorded(need: Need) -> str:
    if isinstance(need, type):
        return ""
    field, _, key = need.partition(":")
    if field == "deltas":
        return f"updates of `{key}`" if key else "updates"
    if field in ("auxiliary", "priors"):
        return f"`{key}` (data that the server has)"
    return RECORDED.get(field, described_need(need))


def main() -> None:
    """Writes the page."""
    write_whole(PAGE, page().encode())
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
