"""Answers of one attack on all views, one after another, with the log odds of each and what they are about."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from fedleak.core.answers import Choices
from fedleak.core.attack import Attack
from fedleak.core.seeding import generator_for
from fedleak.evaluation.posterior.given_counts import log_probability_given_counts
from fedleak.evaluation.posterior.log_odds import Evidence, cross_fitted
from fedleak.evaluation.posterior.matching import Matches, matched
from fedleak.evaluation.posterior.matching import joined as joined_matches
from fedleak.evaluation.runner import AttackAnswers, ScoreContext

FEWEST_PEOPLE = 5
"""People below whom nothing is calibrated."""


@dataclass(frozen=True)
class AnswerRows:
    """Answers of one attack on all views, one after another.

    Attributes:
        parts: of each view.
        scores: ``(N,)``; so are the following.
        labels: which rows are true.
        value_index: number of the value that a row is about, among those of all views; -1 for none.
        people: number of the person.
        questions: number of the question; None for yes-or-no questions.
        strata: kind of question.
        decided: rows on which the attack decided itself.
        labelled: rows whose label is known.
        counted: kind of what each row is about, see `Choices.counted`; None for none.
        keys: view, person and number within the person of each row, by which the rows of two attacks are matched.
    """

    parts: Sequence[AttackAnswers]
    scores: Tensor
    labels: Tensor
    value_index: Tensor
    people: Tensor
    questions: Tensor | None
    strata: Tensor
    decided: Tensor
    labelled: Tensor
    counted: Tensor | None
    keys: pd.MultiIndex

    @property
    def attack(self) -> Attack:
        """The attack whose answers these are."""
        return self.parts[0].attack

    @classmethod
    def of(cls, parts: Sequence[AttackAnswers]) -> "AnswerRows":
        columns: dict[str, list[Tensor]] = {}
        earlier_questions = 0
        earlier_values = 0
        for part in parts:
            answers = part.answers
            assert isinstance(answers, Choices)
            of_view = _columns_of_view(answers, part.context)
            # Numbers of questions and of values go on from view to view.
            if answers.questions is not None:
                of_view["questions"] = answers.questions + earlier_questions
                earlier_questions += int(answers.questions.max()) + 1
            of_view["value_index"] = torch.where(answers.places < 0, -1, answers.places + earlier_values)
            earlier_values += len(part.context.victims)
            for name, column in of_view.items():
                columns.setdefault(name, []).append(column)
        joined_columns = {name: torch.cat(of_views) for name, of_views in columns.items()}
        keys = pd.DataFrame({name: joined_columns.pop(name).numpy() for name in ("round", "owner")})
        keys["number"] = keys.groupby(["round", "owner"], sort=False).cumcount()
        return cls(
            parts,
            keys=pd.MultiIndex.from_frame(keys),
            questions=joined_columns.pop("questions", None),
            counted=joined_columns.pop("counted", None),
            **joined_columns,
        )

    def shuffled(self, seed: int, label: str) -> "AnswerRows":
        """The same with scores that are exchanged among the answers of one kind."""
        scores = self.scores.clone()
        generator = generator_for(seed, f"shuffled {label}")
        for kind in torch.unique(self.strata).tolist():
            of_kind = (self.strata == kind).nonzero().flatten()
            scores[of_kind] = scores[of_kind[torch.randperm(len(of_kind), generator=generator)]]
        return dataclasses.replace(self, scores=scores)

    def aligned(self, other: "AnswerRows") -> Tensor | None:
        """``(N,)`` scores of another attack on the same rows; None if it lacks some of them."""
        if self.keys.equals(other.keys):
            return other.scores
        rows_of_other = torch.from_numpy(other.keys.get_indexer(self.keys))
        # A row that the other attack lacks has the number -1.
        if bool((rows_of_other < 0).any()) or not torch.equal(other.labels[rows_of_other], self.labels):
            return None
        return other.scores[rows_of_other]

    def asks_same(self, other: "AnswerRows") -> bool:
        """Whether another attack was asked the same questions, in the same order."""
        if not self.keys.equals(other.keys) or (self.questions is None) != (other.questions is None):
            return False
        names = ["labels", "people", "strata", "labelled"]
        if self.questions is not None:
            names.append("questions")
        return all(torch.equal(getattr(self, name), getattr(other, name)) for name in names)

    def numbers(self) -> Tensor | None:
        """``(N,)`` logarithm of the number of yes-or-no questions about the same, None where it says nothing."""
        if self.questions is not None:
            return None
        _, value, counts = torch.unique(self.value_index, return_inverse=True, return_counts=True)
        if len(torch.unique(counts)) < 2:
            return None
        numbers: Tensor = counts[value].double().log()
        return numbers

    def odds(self, columns: Sequence[Evidence], generator: torch.Generator) -> Tensor:
        """``(N,)`` log odds, calibrated for each kind of question."""
        odds = torch.zeros(len(self.labels), dtype=torch.float64)
        for kind in torch.unique(self.strata).tolist():
            of_kind = self.strata == kind
            questions = None if self.questions is None else self.questions[of_kind]
            odds[of_kind] = cross_fitted(
                [Evidence(column.scores[of_kind], column.linear) for column in columns],
                self.labels[of_kind],
                self.people[of_kind],
                questions,
                labelled=self.labelled[of_kind],
                generator=generator,
            )
        return odds

    def log_probability(self, odds: Tensor) -> Tensor:
        """``(P,)`` logarithm to base 2 of the probability of all true answers about each value; NaN for none."""
        # Yes-or-no answers: every row's own answer counts; of several answers, that of the true row.
        scored = self.labelled & (self.value_index >= 0)
        if self.questions is None:
            logs = logsigmoid(torch.where(self.labels, odds, -odds))
        else:
            logs = odds
            scored = scored & self.labels
        return self._sums_by_value(logs[scored] / math.log(2), scored)

    def probabilities(self, odds: Tensor) -> Tensor:
        """``(N,)``."""
        if self.questions is None:
            return odds.sigmoid()
        return odds.exp()

    def given_counts(self, odds: Tensor) -> Tensor | None:
        """``(P,)`` as `log_probability`, if it is known how many answers of each kind are true; None without kinds."""
        if self.counted is None or self.questions is not None:
            return None
        scored = self.labelled & (self.value_index >= 0)
        logs = log_probability_given_counts(
            odds[scored],
            self.labels[scored],
            self.value_index[scored],
            self.counted[scored],
            values=self.values,
        )
        return logs.masked_fill(self._without_rows(scored), torch.nan)

    def possible(self) -> Tensor:
        """``(P,)`` logarithm to base 2 of the number of answers to all questions about each value; NaN for none."""
        scored = self.labelled & (self.value_index >= 0)
        # A yes-or-no question has one bit; one of M answers has log2 M bits, spread over its M rows.
        bits = torch.ones(len(self.value_index), dtype=torch.float64)
        if self.questions is not None:
            sizes = torch.bincount(self.questions)[self.questions].double()
            bits = sizes.log2() / sizes
        return self._sums_by_value(bits[scored], scored)

    @property
    def values(self) -> int:
        """Number of values P of all views."""
        return sum(len(part.context.victims) for part in self.parts)

    def _sums_by_value(self, numbers: Tensor, scored: Tensor) -> Tensor:
        """``(P,)`` sums of numbers of the scored rows by value; NaN for a value without rows."""
        sums = torch.zeros(self.values, dtype=torch.float64).index_add_(0, self.value_index[scored], numbers)
        return sums.masked_fill(self._without_rows(scored), torch.nan)

    def _without_rows(self, scored: Tensor) -> Tensor:
        """``(P,)`` whether no scored row is about a value."""
        return torch.bincount(self.value_index[scored], minlength=self.values) == 0

    def matches(self, odds: Tensor, priors: Sequence["AnswerRows"]) -> Matches | None:
        """Clients that log odds ``(N,)`` match with their answers, among those of a view with as many true answers.

        None where more is known of some people than of others before the update: then it is no chance whose answers are
        whose.
        """
        if self.questions is not None or not all(_asked_alike(part) for part in self.parts):
            return None
        of_priors = []
        for prior in priors:
            scores = self.aligned(prior)
            if scores is not None:
                of_priors.append(scores)
        parts = []
        for rows in self._of_parts():
            # A row for each person, a column for each thing that all are asked about.
            people = len(torch.unique(self.value_index[rows]))
            labels = self.labels.double()[rows].reshape(people, -1)
            person_odds = odds[rows].reshape(people, -1)
            for prior_scores in of_priors:
                known_before = prior_scores[rows].reshape(people, -1)
                if bool((known_before != known_before[0]).any()):
                    return None
            # The log-probability of answers y is their sum y * odds, plus what does not depend on y.
            parts.append(matched(person_odds @ labels.T, labels.sum(1)))
        return joined_matches(parts)

    def _of_parts(self) -> Iterator[slice]:
        """Rows of each view."""
        start = 0
        for part in self.parts:
            assert isinstance(part.answers, Choices)
            end = start + len(part.answers.labels)
            yield slice(start, end)
            start = end

    def enough(self) -> bool:
        """Whether there are people enough, with right and with wrong answers, to calibrate on."""
        labels = self.labels[self.labelled]
        people = len(torch.unique(self.people[self.labelled]))
        return people >= FEWEST_PEOPLE and bool(labels.any() and (~labels).any())


def _columns_of_view(answers: Choices, context: ScoreContext) -> dict[str, Tensor]:
    """Columns of `AnswerRows` for one view: ``(N,)`` each, with the number of the owner, and of the round."""
    if answers.people is not None:
        people = owner = answers.people
    else:
        owner = context.victims[answers.places]
        people = owner if context.people is None else context.people[answers.places]
    labelled = torch.ones_like(answers.labels) if context.unscored is None else ~context.unscored[answers.places]
    # A question with no true answer, or several, says nothing of which is true.
    if answers.questions is not None:
        true_answers = torch.zeros(int(answers.questions.max()) + 1)
        true_answers = true_answers.index_add_(0, answers.questions, answers.labels.float())
        labelled &= (true_answers == 1)[answers.questions]
    strata = torch.zeros_like(answers.places) if answers.strata is None else answers.strata
    columns = {
        "scores": answers.scores,
        "labels": answers.labels,
        "people": people,
        "strata": strata,
        "decided": torch.zeros_like(labelled) if answers.decided is None else answers.decided,
        "labelled": labelled,
        "owner": owner,
        "round": torch.full_like(strata, context.round),
    }
    if answers.counted is not None:
        columns["counted"] = answers.counted
    return columns


def _asked_alike(part: AttackAnswers) -> bool:
    """Whether everybody is asked about the same things, each person's answers in a row, and all answers are known."""
    answers = part.answers
    people = len(part.context.victims)
    assert isinstance(answers, Choices)
    if not answers.alike or part.context.unscored is not None or len(answers.places) % people:
        return False
    in_a_row = torch.arange(people).repeat_interleave(len(answers.places) // people)
    return torch.equal(answers.places, in_a_row)
