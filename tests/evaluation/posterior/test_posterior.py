"""Attacks with priors in an evaluation: labels, alignment of the prior, bits, and their control."""

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from fedleak.attacks.interactions.baselines import Popularity
from fedleak.attacks.interactions.estimates import InteractionAttack, InteractionEstimate
from fedleak.attacks.words.estimates import WordSetEstimate
from fedleak.core.attack import Attack
from fedleak.core.release import Release
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import POPULARITY, RoundView
from fedleak.evaluation.posterior.posterior import with_posteriors
from fedleak.evaluation.runner import Evaluation, attack_view, joined
from fedleak.evaluation.summary import paired_differences, summarise
from fedleak.reports.figures.report_figures import report_figures

PEOPLE, ITEMS = 40, 60


class Reader(InteractionAttack):
    """Reads the first column of the update, a noisy label of each item."""

    name = "reader"
    family = "recommendation"
    with_prior = "rank"
    threat_model = ThreatModel(sees="the update", knows="nothing", needs=("served", "deltas:table"))

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        scores = view.deltas["table"][..., 0]
        return InteractionEstimate(scores=scores, decisions=scores > 0.5)


def views(*, related: bool = True, releases: tuple[Release, ...] = ()) -> list[tuple[RoundView, Tensor]]:
    """Two views of 20 clients each, whose labels follow a popularity, and whose updates are noisy labels."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for part in range(2):
        popularity = torch.randint(1, 40, (20, ITEMS), generator=generator)
        labels = (torch.rand(20, ITEMS, generator=generator) < popularity / 45).float()
        sent = labels if related else torch.rand(20, ITEMS, generator=generator)
        view = RoundView(
            round=0,
            pseudonyms=torch.arange(20) + 20 * part,
            example_counts=torch.full((20,), ITEMS),
            deltas={"table": (sent + torch.randn(20, ITEMS, generator=generator) * 0.6)[..., None]},
            model={"table": torch.zeros(ITEMS, 1)},
            row_parameters=frozenset({"table"}),
            served=torch.arange(ITEMS).expand(20, -1),
            priors={POPULARITY: popularity},
            releases=releases,
        )
        found.append((view, labels))
    return found


class Decider(Attack):
    """Knows the words of the first column, and scores each client on a scale of its own."""

    name = "decider"
    family = "words"
    estimates = WordSetEstimate
    threat_model = ThreatModel(sees="the update", knows="nothing", needs=("deltas:table",))
    decides: bool = True

    def run(self, view: RoundView, *, generator: torch.Generator) -> WordSetEstimate:
        held = view.deltas["table"][..., 0] > 0.5
        scores = (held + torch.arange(len(held))[:, None]).double()
        nothing = torch.full((len(held),), torch.nan, dtype=torch.float64)
        return WordSetEstimate(
            scores=scores, decisions=held, expected=nothing, evidence=None if self.decides else scores
        )


class Scorer(Decider):
    """The same without decisions that count."""

    name = "scorer"
    decides = False


def evaluated(attacks: list[Attack], *, shuffled: bool = False, **options: Any) -> Evaluation:
    seen = [
        attack_view(attack, view, {"labels": labels, "clients": view.pseudonyms}, seed=0, setting={"data": "d"})
        for view, labels in views(**options)
        for attack in attacks
    ]
    return with_posteriors(joined(seen), seed=0, shuffled=shuffled)


def means(evaluation: Evaluation) -> dict[tuple[str, str], float]:
    rows = summarise(evaluation)
    return dict(zip(zip(rows["attack"], rows["metric"], strict=True), rows["mean"], strict=True))


def test_both_are_better_than_the_update_and_the_prior() -> None:
    evaluation = evaluated([Reader(), Popularity()])
    found = means(evaluation)
    both = found["reader+prior", "auc"]
    assert both > found["reader", "auc"] + 0.02
    assert both > found["interactions/prior", "auc"] + 0.02
    assert found["reader", "bits"] == found["reader+prior", "bits"] > 5
    left = found["interactions/prior", "bits-left"] - found["reader+prior", "bits-left"]
    assert math.isclose(left, found["reader", "bits"], rel_tol=1e-6)
    assert found["reader+prior", "calibration-error"] < 0.05
    assert evaluation.lines["reader+prior"].question == "InteractionEstimate"
    names = {label: (info.name, info.with_prior) for label, info in evaluation.lines.items()}
    assert names["reader"] == ("reader", False)
    assert names["reader+prior"] == ("reader", True)
    assert names["interactions/prior"] == ("", True)
    pairs = paired_differences(evaluation)
    against = {*pairs["against"][pairs["attack"] == "reader+prior"]}
    assert "reader" in against
    assert against & {"popularity", "interactions/prior"}


def test_decisions_are_evidence_next_to_scores_that_differ_between_people() -> None:
    generator = torch.Generator().manual_seed(0)
    held = torch.rand(30, ITEMS, generator=generator) < 0.2
    held[:, 0] = False  # padding
    view = dataclasses.replace(
        views()[0][0],
        pseudonyms=torch.arange(30),
        example_counts=torch.ones(30),
        deltas={"table": held[..., None].float()},
    )
    truth = {"words": torch.where(held, torch.arange(ITEMS), 0), "clients": view.pseudonyms}
    seen = [attack_view(attack, view, truth, seed=0, setting={"data": "d"}) for attack in (Decider(), Scorer())]
    found = means(with_posteriors(joined(seen), seed=0))
    assert found["decider", "bits-left"] < 2 < 10 < found["scorer", "bits-left"]


def test_updates_of_other_people_add_no_bits() -> None:
    found = means(evaluated([Reader(), Popularity()], related=False))
    assert abs(found["reader", "bits"]) < 0.5
    assert abs(found["reader+prior", "auc"] - found["interactions/prior", "auc"]) < 0.01


def test_a_prior_that_says_nothing_does_no_harm() -> None:
    found = means(evaluated([Reader(), Popularity(shuffled=True)]))
    assert found["reader+prior", "auc"] > found["reader", "auc"] - 0.01


def test_priors_that_are_exchanged_say_nothing_and_do_no_harm() -> None:
    evaluation = evaluated([Reader(), Popularity()], shuffled=True)
    found = means(evaluation)
    assert abs(found["interactions/prior", "auc"] - 0.5) < 0.05
    assert found["reader+prior", "auc"] > found["reader", "auc"] - 0.01
    assert found["popularity", "auc"] > 0.6  # the baseline alone is as it was


def test_an_attack_on_some_of_the_clients_gets_their_prior() -> None:
    (first, labels), (second, others) = views()
    few = torch.tensor([3, 7, 8, 11, 15, 17])
    parts = [
        attack_view(Popularity(), view, {"labels": own, "clients": view.pseudonyms}, seed=0, setting={"data": "d"})
        for view, own in ((first, labels), (second, others))
    ]
    own = {"labels": labels[few], "clients": first.pseudonyms[few]}
    evaluation = joined([*parts, attack_view(Reader(), first.select(few), own, seed=0, setting={"data": "d"})])
    scores = with_posteriors(evaluation, seed=0).scores
    combined = scores[(scores["attack"] == "reader+prior") & (scores["metric"] == "auc")]
    assert combined["person"].tolist() == first.pseudonyms[few].tolist()


def test_bits_stay_below_those_that_the_noise_allows() -> None:
    release = Release(clip=1.0, noise_scale=0.6, parameters=("table",))
    found = means(evaluated([Reader(), Popularity()], releases=(release,)))
    assert math.isclose(found["reader", "bits-bound"], ITEMS / 2 * math.log2(1 + 1 / (ITEMS * 0.36)), rel_tol=1e-5)


def test_reliability_of_both_is_a_table_and_a_figure() -> None:
    evaluation = evaluated([Reader(), Popularity()])
    bins = evaluation.details["reader+prior"]
    assert int(bins["answers"].sum()) == PEOPLE * ITEMS
    assert float((bins["mean probability"] - bins["share true"]).abs().max()) < 0.25
    figures = report_figures(evaluation, summarise(evaluation), ["auc"])
    assert [figure.name for figure in figures].count("reliability") == 1


def test_rounds_with_other_settings_are_calibrated_apart() -> None:
    found = []
    for related, setting in ((True, {"data": "d", "calls": 9}), (False, {"data": "d", "calls": 1})):
        for view, labels in views(related=related):
            truth = {"labels": labels, "clients": view.pseudonyms}
            found += [attack_view(one, view, truth, seed=0, setting=setting) for one in (Reader(), Popularity())]
    rows = summarise(with_posteriors(joined(found), seed=0))
    bits = rows[(rows["attack"] == "reader+prior") & (rows["metric"] == "bits")].set_index("setting.calls")["mean"]
    assert bits[9] > 5
    assert abs(bits[1]) < 0.5
