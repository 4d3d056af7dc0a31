"""Adds to an evaluation the results of attacks with priors, and the bits that updates add to them."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from fedleak.core.answers import Choices, Quantities
from fedleak.core.estimates import Scores
from fedleak.core.seeding import generator_for
from fedleak.evaluation.evaluation import Evaluation, joined
from fedleak.evaluation.labels import combined_label, prior_label
from fedleak.evaluation.posterior.gaussian import vector_posterior
from fedleak.evaluation.posterior.given_counts import log_probability_given_counts
from fedleak.evaluation.posterior.log_odds import Column, cross_fitted
from fedleak.evaluation.posterior.matching import Matches, matched
from fedleak.evaluation.posterior.matching import joined as joined_matches
from fedleak.evaluation.posterior.shares import share_posterior
from fedleak.evaluation.result_names import ANSWERS, PROBABILITY, TRUE
from fedleak.evaluation.runner import Answered, bounds, tabulated
from fedleak.evaluation.scores import from_records

Answers = dict[str, list[Answered]]
"""What attacks on one question say of the answers, by label."""
POSTERIOR = (
    "bits",
    "bits-left",
    "bits-bound",
    "bits-share",
    "bits-possible",
    "bits-beyond-counts",
    "matched-clients",
    "matched-clients-bound",
    "calibration-error",
)
"""Metrics that are added."""
FEWEST_PEOPLE = 5
"""People below whom nothing is calibrated."""
_BINS = 15
_LEAST = 1e-6
"""Distance from 0 and 1 to which posterior probabilities are cut before their log odds are taken."""


def with_posteriors(evaluation: Evaluation, *, seed: int, shuffled: bool = False) -> Evaluation:
    """An evaluation with the results of attacks together with the priors of their questions.

    The priors of a question are its baselines with `Attack.is_prior`. Every attack whose answers are known gets
    ``bits``; one with `Attack.with_prior` has results under ``NAME+prior`` too, the priors together under
    ``FAMILY/prior``. The weights of evidence and priors are fitted on the answers of other people, never on those of
    the person; see the other modules of `fedleak.evaluation.posterior`. Below five people, or two for each number of a
    vector, there is nothing to add. If `shuffled`, what each prior says of the answers of one kind is exchanged among
    them, which makes it a prior that says nothing; the population of vectors stays as it is.
    """
    questions: dict[tuple[str, str], Answers] = {}
    for label, parts in evaluation.answers.items():
        for part in parts:  # apart where settings differ, e.g. the calls of a client: so does the evidence
            key = str(part.info.question), repr(sorted(part.place.setting.items(), key=str))
            questions.setdefault(key, {}).setdefault(label, []).append(part)
    found = [evaluation]
    for answers in questions.values():
        of_choices = isinstance(next(iter(answers.values()))[0].answers, Choices)
        found += _choices(answers, seed, shuffled) if of_choices else _quantities(answers, seed)
    return joined(found)


def _groups(parts: Sequence[Answered], seed: int) -> torch.Generator:
    """Source of the groups of people, the same for all attacks on a question."""
    return generator_for(seed, f"posterior of {parts[0].info.question}")


@dataclass(frozen=True)
class _Rows:
    """Answers of one attack on all views, one after another.

    Attributes:
        parts: of each view.
        scores: ``(N,)``; so are the following.
        labels: which rows are true.
        places: place among the values of all views; -1 for none.
        people: number of the person.
        questions: number of the question; None for yes-or-no questions.
        strata: kind of question.
        decided: rows on which the attack decided itself.
        known: rows whose label is known.
        counted: kind of what each row is about, see `Choices.counted`; None for none.
        keys: view, person and number within the person of each row, by which the rows of two attacks are matched.
    """

    parts: Sequence[Answered]
    scores: Tensor
    labels: Tensor
    places: Tensor
    people: Tensor
    questions: Tensor | None
    strata: Tensor
    decided: Tensor
    known: Tensor
    counted: Tensor | None
    keys: pd.MultiIndex

    @classmethod
    def of(cls, parts: Sequence[Answered]) -> "_Rows":
        columns: dict[str, list[Tensor]] = {}
        asked, values = 0, 0
        for part in parts:
            answers, place = part.answers, part.place
            assert isinstance(answers, Choices)
            of_victims = place.victims if place.people is None else place.people
            people = of_victims[answers.places] if answers.people is None else answers.people
            owner = place.victims[answers.places] if answers.people is None else answers.people
            known = torch.ones_like(answers.labels) if place.unscored is None else ~place.unscored[answers.places]
            if answers.questions is not None:
                true = torch.zeros(int(answers.questions.max()) + 1).index_add_(
                    0, answers.questions, answers.labels.float()
                )
                known &= (true == 1)[answers.questions]
                columns.setdefault("questions", []).append(answers.questions + asked)
                asked += len(true)
            if answers.counted is not None:
                columns.setdefault("counted", []).append(answers.counted)
            strata = torch.zeros_like(answers.places) if answers.strata is None else answers.strata
            own = {"scores": answers.scores, "labels": answers.labels, "people": people, "strata": strata}
            own["decided"] = torch.zeros_like(known) if answers.decided is None else answers.decided
            own |= {"places": torch.where(answers.places < 0, -1, answers.places + values), "known": known}
            own |= {"owner": owner, "round": torch.full_like(strata, place.round)}
            for name, value in own.items():
                columns.setdefault(name, []).append(value)
            values += len(place.victims)
        whole = {name: torch.cat(own) for name, own in columns.items()}
        frame = pd.DataFrame({name: whole.pop(name).numpy() for name in ("round", "owner")})
        frame["number"] = frame.groupby(["round", "owner"], sort=False).cumcount()
        questions, counted = whole.pop("questions", None), whole.pop("counted", None)
        return cls(parts, keys=pd.MultiIndex.from_frame(frame), questions=questions, counted=counted, **whole)

    def shuffled(self, seed: int, label: str) -> "_Rows":
        """The same with scores that are exchanged among the answers of one kind."""
        scores, generator = self.scores.clone(), generator_for(seed, f"shuffled {label}")
        for kind in torch.unique(self.strata).tolist():
            own = (self.strata == kind).nonzero().flatten()
            scores[own] = scores[own[torch.randperm(len(own), generator=generator)]]
        return dataclasses.replace(self, scores=scores)

    def aligned(self, other: "_Rows") -> Tensor | None:
        """``(N,)`` scores of another attack on the same rows; None if it lacks some of them."""
        if self.keys.equals(other.keys):
            return other.scores
        place = torch.from_numpy(other.keys.get_indexer(self.keys))
        if bool((place < 0).any()) or not torch.equal(other.labels[place], self.labels):
            return None
        return other.scores[place]

    def asks_same(self, other: "_Rows") -> bool:
        """Whether another attack was asked the same questions, in the same order."""
        if not self.keys.equals(other.keys) or (self.questions is None) != (other.questions is None):
            return False
        names = ("labels", "people", "strata", "known", *(() if self.questions is None else ("questions",)))
        return all(torch.equal(getattr(self, name), getattr(other, name)) for name in names)

    def numbers(self) -> Tensor | None:
        """``(N,)`` logarithm of the number of yes-or-no questions about the same, None where it says nothing."""
        if self.questions is not None:
            return None
        counts = torch.unique(self.places, return_inverse=True, return_counts=True)
        return None if len(torch.unique(counts[2])) < 2 else counts[2][counts[1]].double().log()

    def odds(self, columns: Sequence[Column], generator: torch.Generator) -> Tensor:
        """``(N,)`` log odds, calibrated for each kind of question."""
        found = torch.zeros(len(self.labels), dtype=torch.float64)
        for kind in torch.unique(self.strata).tolist():
            own = self.strata == kind
            found[own] = cross_fitted(
                [Column(column.scores[own], column.linear) for column in columns],
                self.labels[own],
                self.people[own],
                None if self.questions is None else self.questions[own],
                known=self.known[own],
                generator=generator,
            )
        return found

    def log_probability(self, odds: Tensor) -> Tensor:
        """``(P,)`` logarithm to base 2 of the probability of all true answers about each value; NaN for none."""
        if self.questions is None:
            logs, kept = logsigmoid(torch.where(self.labels, odds, -odds)), self.known & (self.places >= 0)
        else:
            logs, kept = odds, self.known & self.labels & (self.places >= 0)
        values = sum(len(part.place.victims) for part in self.parts)
        sums = torch.zeros(values, dtype=torch.float64).index_add_(0, self.places[kept], logs[kept] / math.log(2))
        return sums.masked_fill(torch.bincount(self.places[kept], minlength=values) == 0, torch.nan)

    def probabilities(self, odds: Tensor) -> Tensor:
        """``(N,)``."""
        return odds.sigmoid() if self.questions is None else odds.exp()

    def given_counts(self, odds: Tensor) -> Tensor | None:
        """``(P,)`` as `log_probability`, if it is known how many answers of each kind are true; None without kinds."""
        if self.counted is None or self.questions is not None:
            return None
        kept = self.known & (self.places >= 0)
        values = sum(len(part.place.victims) for part in self.parts)
        rows = (table[kept] for table in (odds, self.labels, self.places, self.counted))
        logs = log_probability_given_counts(*rows, values=values)
        return logs.masked_fill(torch.bincount(self.places[kept], minlength=values) == 0, torch.nan)

    def possible(self) -> Tensor:
        """``(P,)`` logarithm to base 2 of the number of answers to all questions about each value; NaN for none."""
        values = sum(len(part.place.victims) for part in self.parts)
        asked = self.known & (self.places >= 0)
        each = torch.ones(len(self.places), dtype=torch.float64)
        if self.questions is not None:
            sizes = torch.bincount(self.questions)[self.questions].double()
            each = sizes.log2() / sizes  # a question of M answers has log2 M bits, spread over its M rows
        sums = torch.zeros(values, dtype=torch.float64).index_add_(0, self.places[asked], each[asked])
        return sums.masked_fill(torch.bincount(self.places[asked], minlength=values) == 0, torch.nan)

    def matches(self, odds: Tensor, priors: Sequence["_Rows"]) -> Matches | None:
        """Clients that log odds ``(N,)`` match with their answers, among those of a view with as many true answers.

        None where more is known of some people than of others before the update: then it is no chance whose answers are
        whose.
        """
        if self.questions is not None or not all(_asked_alike(part) for part in self.parts):
            return None
        parts = []
        for rows in self._of_parts():
            people = len(torch.unique(self.places[rows]))
            labels, own_odds = (values[rows].reshape(people, -1) for values in (self.labels.double(), odds))
            of_priors = (scores for own in priors if (scores := self.aligned(own)) is not None)
            known = [scores[rows].reshape(people, -1) for scores in of_priors]
            if any(bool((scores != scores[0]).any()) for scores in known):
                return None
            # The log-probability of answers y is their sum y * odds, plus what does not depend on y.
            parts.append(matched(own_odds @ labels.T, labels.sum(1)))
        return joined_matches(parts)

    def _of_parts(self) -> Iterator[slice]:
        """Rows of each view."""
        start = 0
        for part in self.parts:
            assert isinstance(part.answers, Choices)
            yield slice(start, start := start + len(part.answers.labels))

    def enough(self) -> bool:
        """Whether there are people enough, with right and with wrong answers, to calibrate on."""
        labels = self.labels[self.known]
        return len(torch.unique(self.people[self.known])) >= FEWEST_PEOPLE and bool(labels.any() and (~labels).any())


def _choices(answers: Answers, seed: int, shuffled: bool) -> Iterator[Evaluation]:
    rows = {label: _Rows.of(parts) for label, parts in answers.items()}
    if shuffled:
        rows = {
            label: own.shuffled(seed, label) if own.parts[0].attack.is_prior else own for label, own in rows.items()
        }
    rows = {label: own for label, own in rows.items() if own.enough()}
    priors = [own for own in rows.values() if own.parts[0].attack.is_prior]
    known: list[tuple[_Rows, Tensor]] = []  # log odds by the priors alone, once for all attacks on the same questions
    for label, own in rows.items():
        attack = own.parts[0].attack
        if attack.baseline:
            continue
        before = _columns(priors, own)
        scores = own.scores.logit(_LEAST) if attack.with_prior == "posterior" else own.scores
        evidence = [Column(scores, linear=attack.with_prior in ("likelihood", "posterior"))]
        evidence += [Column(own.decided.double(), linear=True)] if bool(own.decided.any()) else []
        odds = own.odds([*evidence, *before], _groups(own.parts, seed))
        without = _without(priors, own, known, seed)
        left, before_it = -own.log_probability(odds), -own.log_probability(without)
        bins = _reliability(own, odds)
        extra = _metrics(
            before_it - left, own.parts, _calibration_error(bins), own.possible(), own.matches(odds, priors)
        )
        extra["bits-left"] = left
        both, prior_alone = own.given_counts(odds), own.given_counts(without)
        if both is not None and prior_alone is not None:
            extra["bits-beyond-counts"] = both - prior_alone
        yield from _rescored(own, extra, label)
        if attack.with_prior in ("likelihood", "rank") and any(own.aligned(other) is not None for other in priors):
            yield from _rescored(own, extra, combined_label(label), odds)
            yield Evaluation(details={combined_label(label): from_records(bins)})
        elif attack.with_prior is not None:
            yield Evaluation(details={label: from_records(bins)})
    if priors and any(own.parts[0].attack.with_prior for own in rows.values()):
        first = priors[0]
        odds = _without(priors, first, known, seed)
        left = -first.log_probability(odds)
        error = _calibration_error(_reliability(first, odds))
        extra = {"bits-left": left, "calibration-error": torch.full_like(left, error)}
        yield from _rescored(first, extra, prior_label(first.parts[0].info.family), odds)


def _columns(priors: Sequence[_Rows], own: _Rows) -> list[Column]:
    """What the priors say of the questions of an attack, with the number of questions about the same."""
    matched = [Column(scores) for other in priors if (scores := own.aligned(other)) is not None]
    count = own.numbers()
    return [*matched, *([] if count is None else [Column(count)])]


def _without(priors: Sequence[_Rows], own: _Rows, known: list[tuple[_Rows, Tensor]], seed: int) -> Tensor:
    """``(N,)`` log odds by the priors alone, of those that are known or else added to them."""
    found = next((odds for other, odds in known if own.asks_same(other)), None)
    if found is None:
        found = own.odds(_columns(priors, own), _groups(own.parts, seed))
        known.append((own, found))
    return found


def _asked_alike(part: Answered) -> bool:
    """Whether everybody is asked about the same things, each person's answers in a row, and all answers are known."""
    answers, people = part.answers, len(part.place.victims)
    assert isinstance(answers, Choices)
    if not answers.alike or part.place.unscored is not None or len(answers.places) % people:
        return False
    in_a_row = torch.arange(people).repeat_interleave(len(answers.places) // people)
    return torch.equal(answers.places, in_a_row)


def _metrics(
    bits: Tensor, parts: Sequence[Answered], error: float, possible: Tensor | None, matches: Matches | None
) -> dict[str, Tensor]:
    """Bits ``(P,)``, what bounds them, the matches that test a declared epsilon, and the calibration error."""
    bound = torch.cat([part.place.capacity for part in parts])
    epsilon = torch.cat([part.place.epsilon for part in parts])
    metrics = {"bits": bits, **bounds(bits, bound), "calibration-error": torch.full_like(bits, error)}
    if "bits-bound" not in metrics and possible is not None:
        metrics["bits-possible"] = possible
    if matches is not None and bool(epsilon.isfinite().all()) and bool(matches.right.isfinite().any()):
        metrics |= {"matched-clients": matches.right, "matched-clients-bound": matches.bound(epsilon)}
    return metrics


def _rescored(rows: _Rows, extra: dict[str, Tensor], label: str, odds: Tensor | None = None) -> Iterator[Evaluation]:
    """Results of each view under a label: of the estimate with these log odds, or further metrics alone."""
    row, value = 0, 0
    for part in rows.parts:
        answers, size = part.answers, len(part.place.victims)
        assert isinstance(answers, Choices)
        own = {name: values[value : value + size] for name, values in extra.items()}
        if odds is None:
            yield _metrics_alone(part, label, own)
        else:
            scores: Scores = answers.rescored(odds[row : row + len(answers.labels)])
            yield _whole(part, label, scores, own)
        row, value = row + len(answers.labels), value + size


def _metrics_alone(part: Answered, label: str, metrics: dict[str, Tensor]) -> Evaluation:
    settings = part.settings
    return tabulated(label, Scores(metrics, settings=settings), part.place, info=part.info, seconds=part.seconds)


def _whole(part: Answered, label: str, scores: Scores, extra: dict[str, Tensor]) -> Evaluation:
    if part.info.role == "baseline":  # the priors together, which are no attack that ran
        info = dataclasses.replace(part.info, name="", variant=None, with_prior=True)
    else:
        knows = f"{part.info.knows}; the priors of the question, with weights learned from other people's answers"
        info = dataclasses.replace(part.info, role="ours", knows=knows, with_prior=True)
    scores = dataclasses.replace(scores, metrics={**scores.metrics, **extra}, details=())
    return tabulated(label, scores, part.place, info=info, seconds=part.seconds)


def _reliability(rows: _Rows, odds: Tensor) -> list[dict[str, float]]:
    """Mean probability, share of true answers and number of answers in each bin of equal width that has some."""
    chance, labels = rows.probabilities(odds)[rows.known], rows.labels[rows.known].double()
    place = (chance * _BINS).long().clamp(max=_BINS - 1)
    sums = [torch.zeros(_BINS, dtype=torch.float64).index_add_(0, place, values) for values in (chance, labels)]
    counts = place.bincount(minlength=_BINS)
    means = [own / counts.clamp(min=1) for own in sums]
    return [
        {PROBABILITY: float(means[0][number]), TRUE: float(means[1][number]), ANSWERS: int(counts[number])}
        for number in counts.nonzero().flatten().tolist()
    ]


def _calibration_error(bins: Sequence[dict[str, float]]) -> float:
    """Mean distance of predicted and observed shares, weighted by answers.

    References:
        Naeini, Cooper and Hauskrecht, "Obtaining well calibrated probabilities using Bayesian binning", AAAI 2015.
    """
    return sum(one[ANSWERS] * abs(one[PROBABILITY] - one[TRUE]) for one in bins) / sum(one[ANSWERS] for one in bins)


def _quantities(answers: Answers, seed: int) -> Iterator[Evaluation]:
    with_baseline = False
    for label, parts in answers.items():
        attack = parts[0].attack
        if attack.baseline:
            continue
        inferred, true, grid = (
            torch.cat([getattr(part.answers, name) for part in parts]).double() for name in ("inferred", "true", "grid")
        )
        people = torch.cat([p.place.victims if p.place.people is None else p.place.people for p in parts])
        if len(torch.unique(people)) < max(FEWEST_PEOPLE, 2 * true.shape[1]):
            continue  # covariances of fewer people than numbers are guesses
        posterior = share_posterior if bool((grid > 0).all()) else vector_posterior
        found = posterior(inferred, true, grid, people, generator=_groups(parts, seed))
        possible = None if found.left is None else _possible_counts(grid, true.shape[1])
        metrics, place = _metrics(found.bits, parts, found.calibration_error, possible, found.matches), 0
        if found.left is not None:
            metrics["bits-left"] = found.left
        for part in parts:
            assert isinstance(part.answers, Quantities)
            own = slice(place, place := place + len(part.place.victims))
            extra = {name: values[own] for name, values in metrics.items()}
            yield _metrics_alone(part, label, extra)
            if attack.with_prior is not None:
                yield _whole(part, combined_label(label), part.answers.rescored(found.mean[own]), extra)
            if attack.with_prior is not None and not with_baseline:
                prior = dataclasses.replace(part.info, role="baseline", comparison="prior")
                baseline = dataclasses.replace(part, info=prior)
                unknown = {} if found.left is None else {"bits-left": (found.bits + found.left)[own]}
                yield _whole(baseline, prior_label(part.info.family), part.answers.rescored(found.prior[own]), unknown)
        with_baseline = with_baseline or attack.with_prior is not None


def _possible_counts(grid: Tensor, classes: int) -> Tensor:
    """``(V,)`` logarithm to base 2 of the number of vectors of class counts of clients with ``1 / grid`` examples."""
    examples = 1 / grid
    ways = torch.lgamma(examples + classes) - torch.lgamma(examples + 1) - math.lgamma(classes)
    bits: Tensor = ways / math.log(2)
    return bits
