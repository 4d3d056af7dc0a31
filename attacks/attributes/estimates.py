"""Attributes of people: the estimate and its scores."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedleak.core.answers import Choices
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate, EstimateError, Scores, check_tensor
from fedleak.core.metric import Metric
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
        is_repeated = len(torch.unique(senders)) != len(senders)
        if is_repeated or bool(torch.isin(senders, known_people(view)).any()):
            raise EstimateError("messages: expected one of each person of whom nothing is known")

    def score(self, view: View, truth: Mapping[str, Tensor]) -> Scores:
        """AUC and balanced accuracy of each attribute, decomposed into one value of each person.

        ``auc`` is the mean over the values of an attribute of the AUC of one against the rest; people of whom the data
        do not have the attribute are left out, and so are values that nobody has. A person's value of it is the share
        of people with other values who rank below it for its own, ties half, times the weight with which the mean over
        people is that over the values: the number of people over that of the values and of the people with the same.
        Both metrics depend on how many people have each value, so the intervals are of influences.

        References:
            [DeLong88].
        """
        true_values = truth["attributes"][self.messages].long()
        people = truth["clients"][self.messages]
        if true_values.shape[1] != len(self.evidence):
            raise ViewError(
                "expected as many attributes of known people as in the ground truth, got"
                f" {len(self.evidence)} attributes, but {true_values.shape[1]} in truth/"
            )
        return self._scored(true_values, people)

    def _scored(self, true_values: Tensor, people: Tensor) -> Scores:
        """Scores of ``true_values (W, A)`` of ``people (W,)``, by attribute; -1 where truth/ lacks it."""
        values: dict[str, list[Tensor]] = {"auc": [], BALANCED: []}
        influences: dict[str, list[Tensor]] = {"auc": [], BALANCED: []}
        units: list[Tensor] = []
        names: list[str] = []
        sizes: list[int] = []
        for column, (name, evidence) in enumerate(self.evidence.items()):
            with_truth = (true_values[:, column] >= 0).nonzero().flatten()
            of_people, influences_of_people = scores_of_people(
                evidence[with_truth].double(), true_values[with_truth, column]
            )
            for key in values:
                values[key].append(of_people[key])
                influences[key].append(influences_of_people[key])
            units.append(people[with_truth])
            names += [name] * len(with_truth)
            sizes += [evidence.shape[1]] * len(with_truth)
        return Scores(
            {key: torch.cat(parts) for key, parts in values.items()},
            torch.tensor(sizes, dtype=torch.int64),
            torch.ones(len(names), dtype=torch.int64),
            units=torch.cat(units),
            influences={key: torch.cat(parts) for key, parts in influences.items()},
            settings={"attribute": names},
            answers=self._answers(true_values, people),
        )

    def _answers(self, true_values: Tensor, people: Tensor) -> Choices:
        """The values ``(N,)`` of all attributes and people, with a question for each attribute of a person.

        A question of an attribute with K values takes K rows, one for each value that could be the answer.
        """
        with_truth = [(column >= 0).nonzero().flatten() for column in true_values.T]
        attributes = list(zip(self.evidence.values(), with_truth, strict=True))
        shapes = [(len(rows), evidence.shape[1]) for evidence, rows in attributes]
        question = torch.arange(sum(map(len, with_truth)))
        widths = torch.cat([torch.full((count,), width) for count, width in shapes])
        answer = torch.cat([true_values[rows, column] for column, rows in enumerate(with_truth)])
        candidate = torch.cat([torch.arange(width).repeat(count) for count, width in shapes])
        sizes = [count * width for count, width in shapes]

        def rescored(odds: Tensor) -> Scores:
            evidence_from_odds = {}
            parts = torch.split(odds, sizes)
            for (name, evidence), rows, part in zip(self.evidence.items(), with_truth, parts, strict=True):
                empty = torch.zeros(evidence.shape, dtype=torch.float64)
                evidence_from_odds[name] = empty.index_copy(0, rows, part.view(len(rows), -1))
            return AttributeEstimate(messages=self.messages, evidence=evidence_from_odds)._scored(true_values, people)

        return Choices(
            scores=torch.cat([evidence[rows].double().flatten() for evidence, rows in attributes]),
            labels=candidate == answer.repeat_interleave(widths),
            places=question.repeat_interleave(widths),
            people=torch.cat([people[rows] for rows in with_truth]).repeat_interleave(widths),
            questions=question.repeat_interleave(widths),
            strata=torch.cat([torch.full((size,), attribute) for attribute, size in enumerate(sizes)]),
            rescored=rescored,
        )


def scores_of_people(evidence: Tensor, true_values: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Values and influences ``(W,)`` by metric, see `AttributeEstimate.score`, of people with ``true_values (W,)``.

    Higher ``evidence (W, K)`` means more likely.
    """
    people = len(true_values)
    classes = torch.unique(true_values)
    is_found = (evidence.argmax(1) == true_values).double()
    values = {name: torch.zeros(people, dtype=torch.float64) for name in ("auc", BALANCED)}
    influences = {name: torch.zeros(people, dtype=torch.float64) for name in values}
    if len(classes) < 2:
        undefined = {name: torch.full((people,), torch.nan, dtype=torch.float64) for name in values}
        return undefined, undefined
    for value in classes.tolist():
        positive = true_values == value
        # The mean over all people with these weights is the mean over those with the value, or over those without.
        positive_weight = people / int(positive.sum())
        negative_weight = people / int((~positive).sum())
        # A value that no known person has is never inferred: the order of the others is that of guessing.
        scores = torch.zeros(people, dtype=torch.float64)
        if value < evidence.shape[1]:
            scores = evidence[:, value]
        # DeLong's components of the AUC: a positive's share of negatives below it, a negative's of positives above it.
        below = wins_over_negatives(scores, positive)
        above = 1 - wins_over_negatives(scores, ~positive)
        auc = below.mean()
        recall = is_found[positive].mean()
        values["auc"][positive] = positive_weight * below / len(classes)
        influences["auc"][positive] += positive_weight * (below - auc) / len(classes)
        influences["auc"][~positive] += negative_weight * (above - auc) / len(classes)
        values[BALANCED][positive] = positive_weight * is_found[positive] / len(classes)
        influences[BALANCED][positive] += positive_weight * (is_found[positive] - recall) / len(classes)
    # Influences have a mean of zero; the metric itself is added, as for values.
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
