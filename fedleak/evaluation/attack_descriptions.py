"""What the attacks say of themselves, kept in the user's cache: a list of attacks then takes no import of torch."""

import contextlib
import functools
import inspect
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fedleak.core.metric import Metric
from fedleak.core.metric_table import JUDGED_BY, METRICS
from fedleak.core.source_cache import keep, read_kept, source_key

if TYPE_CHECKING:
    from fedleak.core.attack import Attack

_DESCRIBING = ("attacks", "client", "core", "evaluation")
"""Packages whose source the descriptions depend on."""
NO_DATA = frozenset({"clients", "user", "known_user", "coin"})
"""Ground truth that says nothing of the content of a client's data."""


@dataclass(frozen=True)
class AttackDescription:
    """What an attack says of itself; the attributes are those of `fedleak.core.attack.Attack`.

    Attributes:
        question: first line of the documentation of its family.
        inferred: what the server infers, from the attack's type of estimate.
        needs: what the threat model needs, as text.
        estimates: name of that question in results, see `fedleak.core.estimates.Estimate.question`.
        comparison: what a baseline is as a comparison, see `fedleak.core.attack.Attack.comparison`.
        labels: every name that its results may have.
        taxonomy: the same names by taxonomy, None where none fits.
        summary: first paragraph of its documentation, without marks of code.
        listed: whether audits and `fedleak list` have it.
        names: names in public taxonomies, see `fedleak.core.taxonomy.Taxonomy`.
        about_data: whether the question is about the content of a client's data: other ground truth scores it than who
            sent which update, and in which of two worlds a canary is.
    """

    name: str
    family: str
    question: str
    inferred: str
    baseline: bool
    exact: bool
    references: list[str]
    cost: str
    needs: list[str]
    names: list[str]
    about_data: bool
    for_comparison: bool
    estimates: str
    comparison: str
    labels: list[str]
    taxonomy: dict[str, str | None]
    summary: str
    listed: bool


@dataclass(frozen=True)
class Descriptions:
    """What the sources say of attacks and of what they measure.

    Attributes:
        attacks: the attacks of `fedleak.evaluation.registry`, in its order, also those that are not listed.
        metrics: the table of metrics with all attacks, in its order.
        judged_by: `fedleak.core.metric_table.JUDGED_BY` with all attacks.
    """

    attacks: list[AttackDescription]
    metrics: list[Metric]
    judged_by: dict[str, tuple[str, ...]]

    @classmethod
    def of_plain(cls, content: Mapping[str, Any]) -> "Descriptions":
        """Descriptions of plain values, as JSON gives them."""
        metrics = []
        for fields in content["metrics"]:
            # JSON has a list where a span is a pair.
            least_and_most = fields.pop("span")
            span = None if least_and_most is None else (least_and_most[0], least_and_most[1])
            metrics.append(Metric(**fields, span=span))
        return cls(
            attacks=[AttackDescription(**fields) for fields in content["attacks"]],
            metrics=metrics,
            judged_by={question: tuple(names) for question, names in content["judged_by"].items()},
        )


def described() -> list[AttackDescription]:
    """The listed attacks of `fedleak.evaluation.registry`, in its order."""
    return [attack for attack in descriptions().attacks if attack.listed]


def know_metrics() -> None:
    """Adds the metrics of all attacks to the table of metrics, as importing the attacks does."""
    of_all_attacks = descriptions()
    for entry in of_all_attacks.metrics:
        METRICS.setdefault(entry.name, entry)
    for question, names in of_all_attacks.judged_by.items():
        JUDGED_BY.setdefault(question, names)


def descriptions() -> Descriptions:
    """The descriptions of all attacks and metrics, read from the cache until a source file changes."""
    key = source_key(_DESCRIBING)
    cached = read_kept("attacks", key)
    with contextlib.suppress(ValueError, TypeError, KeyError):  # a damaged one
        return Descriptions.of_plain(cached)
    described_now = _imported()
    keep("attacks", key, asdict(described_now))
    return described_now


def _imported() -> Descriptions:
    """The descriptions, from the classes of the attacks."""
    from fedleak.evaluation import auditing, what_if  # noqa: F401 - they add metrics of their own
    from fedleak.evaluation.registry import KNOWN

    attacks = [_description_of(kind) for kind in KNOWN]
    return Descriptions(attacks=attacks, metrics=list(METRICS.values()), judged_by=dict(JUDGED_BY))


def _description_of(kind: "type[Attack]") -> AttackDescription:
    family = sys.modules[kind.__module__.rpartition(".")[0]]
    return AttackDescription(
        name=kind.name,
        family=kind.family,
        question=(inspect.getdoc(family) or "").partition("\n")[0],
        inferred=kind.estimates.inferred,
        baseline=kind.baseline,
        exact=kind.exact,
        references=list(kind.references),
        cost=kind.cost,
        needs=list(kind.threat_model.described_needs),
        names=list(kind.public_names().names),
        about_data=bool(set(kind.estimates.truth) - NO_DATA),
        for_comparison=kind.for_comparison,
        estimates=kind.estimates.question(),
        comparison=kind.comparison(),
        labels=list(kind.names()),
        taxonomy=asdict(kind.public_names()),
        summary=_summary(kind),
        listed=kind.listed,
    )


def _summary(kind: type) -> str:
    """First paragraph of the documentation of an attack, without marks of code."""
    text = (kind.__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(text.replace("`", "").split())


@functools.cache
def inferred_by_family() -> dict[str, str]:
    """What the server may infer, by family: of its first attack."""
    questions: dict[str, str] = {}
    for attack in described():
        if not attack.baseline:
            questions.setdefault(attack.family, attack.inferred)
    return questions


@functools.cache
def is_about_data() -> dict[str, bool]:
    """Whether the question of each family is about the content of a client's data."""
    about: dict[str, bool] = {}
    for attack in described():
        about[attack.family] = about.get(attack.family, False) or attack.about_data
    return about
