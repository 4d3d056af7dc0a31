"""Attributes of people: the estimate and its scores."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.core.answers import Choices
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate, EstimateError, Scores, check_tensor
from fedleak.core.metric_table import Metric
from fedleak.core.scoring import wins_over_negatives
from fedleak.core.view import ATTRIBUTE, ATTRIBUTE_PSEUDONYMS, View

BALANCED = "balanced-accuracy"


@dataclass(frozen=True, kw_only=True)
class AttributeEstimate(Estimate):
    """Attributes of the people of whom the server does not know them.

    Attributes:
        messages: ``(W,)`` number in the view of the first message of each of these people.
        evidence: by attribute, in the order of `attribute_names`, ``(W, K)`` logarithm of the probability of each value
            over that of guessing from the known people's values; higher means more likely.
    """

    inferred = "attributes of the person, such as gender or age, that its data do not name"
    truth = ("attributes", "clients")
    metrics: ClassVar[tuple[str | Metric, ...]] = (
        "auc",
        Metric(
            BALANCED,
            "Balanced accuracy is the mean over an attribute's values of the share of people whose value is found.",
            span=(0.0, 1.0),
        ),
    )
    messages: Tensor
    evidence: Mapping[str, Tensor]

    def check(self, view: View) -> None:
        names = attribute_names(view)
        if list(self.evidence) != names:
            raise EstimateError(f"evidence: expected {', '.join(names)}, got {', '.join(self.evidence)}")
        for name, values in self.evidence.items():
            check_tensor(name, values, (len(self.messages), values.shape[-1]))
        senders = view.pseudonyms[self.messages]
        if len(torch.unique(senders)) != len(senders) or bool(torch.isin(senders, known_people(view)).any()):
            raise EstimateError("messages: expected one of each person of whom nothing is known")

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """AUC and balanced accuracy of each attribute, decomposed into one value of each person.

        ``auc`` is the mean over the values of an attribute of the AUC of one against the rest; people of whom the data
        do not have the attribute are left out, and so are values that nobody has. A person's value of it is the share
        of people with other values who rank below it for its own, ties half, times the weight with which the mean over
        people is that over the values: the number of people over that of the values and of the people with the same.
        Both metrics depend on how many people have each value, so the intervals are of influences.

        References:
            E. R. DeLong, D. M. DeLong and D. L. Clarke-Pearson, "Comparing the Areas under Two or More Correlated
            Receiver Operating Characteristic Curves: A Nonparametric Approach", Biometrics 44(3), 1988.
        """
        held, people = truth["attributes"][self.messages].long(), truth["clients"][self.messages]
        if held.shape[1] != len(self.evidence):
            found = f"{len(self.evidence)} attributes, but {held.shape[1]} in truth/"
            raise ViewError(f"expected as many attributes of known people as in the ground truth, got {found}")
        return self._scored(held, people)

    def _scored(self, held: Tensor, people: Tensor) -> Scores:
        parts = []
        for column, (name, evidence) in enumerate(self.evidence.items()):
            asked = (held[:, column] >= 0).nonzero().flatten()
            values, influences = scores_of_people(evidence[asked].double(), held[asked, column])
            parts.append((name, people[asked], values, influences))
        names = [name for name, own, _, _ in parts for _ in own]
        sizes = [
            evidence.shape[1]
            for (_, own, _, _), evidence in zip(parts, self.evidence.values(), strict=True)
            for _ in own
        ]
        return Scores(
            {key: torch.cat([values[key] for _, _, values, _ in parts]) for key in ("auc", BALANCED)},
            torch.tensor(sizes, dtype=torch.int64),
            torch.ones(len(names), dtype=torch.int64),
            units=torch.cat([own for _, own, _, _ in parts]),
            influences={key: torch.cat([own[key] for _, _, _, own in parts]) for key in ("auc", BALANCED)},
            settings={"attribute": names},
            answers=self._answers(held, people),
        )

    def _answers(self, held: Tensor, people: Tensor) -> Choices:
        """The values ``(N,)`` of all attributes and people, with a question for each attribute of a person."""
        asked = [(held[:, column] >= 0).nonzero().flatten() for column in range(held.shape[1])]
        shapes = [(len(own), values.shape[1]) for own, values in zip(asked, self.evidence.values(), strict=True)]
        number = torch.arange(sum(map(len, asked)))
        widths = torch.cat([torch.full((count,), width) for count, width in shapes])
        known = torch.cat([held[own, column] for column, own in enumerate(asked)]).repeat_interleave(widths)
        value = torch.cat([torch.arange(width).repeat(count) for count, width in shapes])

        def rescored(odds: Tensor) -> Scores:
            found, parts = {}, torch.split(odds, [count * width for count, width in shapes])
            for (name, values), own, part in zip(self.evidence.items(), asked, parts, strict=True):
                found[name] = torch.zeros(values.shape, dtype=torch.float64).index_copy(0, own, part.view(len(own), -1))
            return AttributeEstimate(messages=self.messages, evidence=found)._scored(held, people)

        return Choices(
            scores=torch.cat([v[own].double().flatten() for v, own in zip(self.evidence.values(), asked, strict=True)]),
            labels=value == known,
            places=number.repeat_interleave(widths),
            people=torch.cat([people[own] for own in asked]).repeat_interleave(widths),
            questions=number.repeat_interleave(widths),
            strata=torch.cat([torch.full((count * width,), place) for place, (count, width) in enumerate(shapes)]),
            rescored=rescored,
        )


def scores_of_people(evidence: Tensor, held: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Values and influences ``(W,)`` by metric, see `AttributeEstimate.score`, of people with values ``held (W,)``.

    Higher ``evidence (W, K)`` means more likely.
    """
    people, found = len(held), torch.unique(held)
    right = (evidence.argmax(1) == held).double()
    values = {name: torch.zeros(people, dtype=torch.float64) for name in ("auc", BALANCED)}
    influences = {name: torch.zeros(people, dtype=torch.float64) for name in values}
    if len(found) < 2:
        nothing = {name: torch.full((people,), torch.nan, dtype=torch.float64) for name in values}
        return nothing, nothing
    for value in found.tolist():
        own = held == value
        weight, other = people / int(own.sum()), people / int((~own).sum())
        # A value that no known person has is never inferred: the order of the others is that of guessing.
        scores = evidence[:, value] if value < evidence.shape[1] else torch.zeros(people, dtype=torch.float64)
        below = wins_over_negatives(scores, own)
        above = 1 - wins_over_negatives(scores, ~own)
        auc, recall = below.mean(), right[own].mean()
        values["auc"][own] = weight * below / len(found)
        influences["auc"][own] += weight * (below - auc) / len(found)
        influences["auc"][~own] += other * (above - auc) / len(found)
        values[BALANCED][own] = weight * right[own] / len(found)
        influences[BALANCED][own] += weight * (right[own] - recall) / len(found)
    return values, {name: values[name].mean() + influence for name, influence in influences.items()}


def attribute_names(view: View) -> list[str]:
    """Names of the attributes that the server knows of some people, ascending, as the columns of the ground truth.

    Raises:
        ViewError: there is none.
    """
    names = sorted(name.removeprefix(ATTRIBUTE) for name in view.auxiliary if name.startswith(ATTRIBUTE))
    if not names:
        raise ViewError("expected attributes of known people, got none in the auxiliary data")
    return names


def known_people(view: View) -> Tensor:
    """``(P,)`` pseudonyms of the people whose attributes the server knows."""
    return view.auxiliary[ATTRIBUTE_PSEUDONYMS]
