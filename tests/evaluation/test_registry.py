"""Every attack and variant describes itself, and is found by its names and its class path."""

import inspect
from typing import get_type_hints

import pytest
import torch

from fedleak import attacks
from fedleak.attacks.composition import Decaf
from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.re_identification import FingerprintAttack
from fedleak.attacks.recommendation import Direction
from fedleak.core.attack import Attack
from fedleak.core.errors import InputError
from fedleak.core.estimates import Estimate
from fedleak.core.exports import public_names
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView
from fedleak.evaluation.registry import (
    KNOWN,
    REGISTRY,
    check_distinct,
    chosen_attacks,
    find,
    make_attack,
    published_beside,
    variants_of,
)
from tests.attacks.runs import plain_view

pytestmark = pytest.mark.inventory


@pytest.mark.parametrize("kind", REGISTRY.values(), ids=REGISTRY)
def test_an_attack_describes_itself(kind: type[Attack]) -> None:
    for name in get_type_hints(Attack):
        assert hasattr(kind, name), name
    assert isinstance(kind.threat_model, ThreatModel)
    assert issubclass(kind.estimates, Estimate)
    assert kind.estimates.inferred
    assert not kind.estimates.inferred.endswith(".")
    assert kind.cost
    documented = inspect.cleandoc(kind.__dict__["__doc__"])
    assert "Threat model:" in documented
    assert documented.splitlines()[0].endswith(".")
    assert "\nReferences:\n" in documented
    # What a server does not look at needs no deltas; a baseline that reads the update says which of it.
    # What is computed without ground truth, such as a rank, says nothing of a client.
    silent = "deltas" not in kind.threat_model.fields and bool(kind.estimates.truth)
    assert kind.baseline or not silent


def test_attacks_of_a_question_have_one_view_and_are_no_baselines_alone() -> None:
    questions = {kind.estimates.question() for kind in REGISTRY.values()}
    for question in questions:
        asking = [kind for kind in REGISTRY.values() if kind.estimates.question() == question]
        assert len({kind.view for kind in asking}) == 1, question
        assert not all(kind.baseline for kind in asking), question


def test_its_representation_makes_it_again() -> None:
    for kind in REGISTRY.values():
        attack = kind()
        for name in inspect.signature(kind).parameters:
            assert f"{name}={getattr(attack, name)!r}" in repr(attack)
        assert repr(eval(repr(attack), {kind.__name__: kind})) == repr(attack)


def test_every_attack_is_found_by_its_names() -> None:
    for kind in KNOWN:
        assert find(f"{kind.__module__}.{kind.__qualname__}") is kind
        assert all(find(f"{kind.family}/{name}") is kind for name in kind.names())
        if kind.variant_of is None and kind.__name__ in public_names(attacks):
            assert getattr(attacks, kind.__name__) is kind
            assert kind.__name__ in dir(attacks)
    assert all(find(key) is kind for key, kind in REGISTRY.items())
    assert find("direction") is find("fedleak.attacks.Direction") is Direction
    assert find("fgsm") is REGISTRY["images/raifle"]
    assert find("ranking/raifle-none") is REGISTRY["ranking/raifle"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("directoin", "Did you mean direction"),
        ("xyz", "Known: .*direction"),
        ("raifle", "recommendation/raifle or ranking/raifle or images/raifle"),
        ("ranking/direction", "Did you mean .*recommendation/direction"),
        ("no_such_package.Attack", "No module named 'no_such_package'"),
        ("fedleak.attacks.recommendation.Directoin", "no attribute 'Directoin'"),
        ("fedleak.attacks.Decaf-erly", "Did you mean early"),
        ("fedleak.core.attack.Attack", "a subclass of fedleak.core.attack.Attack without abstract"),
        ("fedleak.core.view.RoundView", "a subclass of fedleak.core.attack.Attack"),
        (".Direction", "Empty module name"),
    ],
)
def test_a_wrong_name_is_answered_in_a_line(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find(name)


def test_folder_of_an_attack_is_its_family() -> None:
    wrong = [kind for kind in KNOWN if kind.__module__.split(".")[2] != kind.family.replace("-", "_")]
    assert wrong == []


def test_two_attacks_of_one_name_are_refused() -> None:
    class Twice(Direction):
        """Has the name of another attack of its family."""

    class Shadow(Direction):
        """Has results with another attack's name."""

        name, manipulated_names = "shadow", {None: "direction"}

    check_distinct([Direction, Direction])
    for other in (Twice, Shadow):
        with pytest.raises(InputError, match=rf"recommendation/direction as .*{other.__name__}"):
            check_distinct([Direction, other])


def test_variant_is_an_attack_with_other_values() -> None:
    early = find("decaf-early")
    assert early is find("fedleak.attacks.Decaf-early") is variants_of(Decaf)["early"]
    assert (early.__name__, early.variant_of, early.family) == ("DecafEarly", Decaf, "composition")
    assert vars(make_attack("decaf-early", {"threshold": 0.1})) == vars(Decaf(solver="early-stopped", threshold=0.1))
    assert "early-stopped" in repr(early())
    linked = find("fingerprint-linked")
    assert "pseudonyms" in linked.threat_model.sees
    assert "pseudonyms" not in FingerprintAttack.threat_model.sees
    with pytest.raises(InputError, match="penalty"):
        make_attack("reid-svm-linked", {"penalty": -1.0})


@pytest.mark.parametrize("kind", [kind for kind in KNOWN if kind.variants and kind.variant_of is None])
def test_variants_are_documented(kind: type[Attack]) -> None:
    documented = "".join(inspect.getdoc(base) or "" for base in kind.__mro__ if issubclass(base, Attack))
    assert all(f"\n    {key}: " in documented.partition("\nVariants:")[2] for key in kind.variants)


def test_variant_that_is_not_listed_is_found_by_name() -> None:
    simulated = find("reid-svm-simulated")
    assert simulated in KNOWN
    assert simulated not in REGISTRY.values()


def test_the_label_is_the_name_unless_the_class_says_otherwise() -> None:
    class Mine(Attack):
        name, family, estimates = "mine", "test", InteractionEstimate
        threat_model = ThreatModel(sees="", knows="", needs=())

        def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
            raise NotImplementedError

    assert Mine().label(plain_view(2)) == "mine"


def test_an_attack_without_a_part_is_refused() -> None:
    parts = {"name": "mine", "family": "test", "threat_model": Direction.threat_model, "run": Direction.run}
    with pytest.raises(InputError, match=r"estimates in .*\.Mine"):
        type("Mine", (Attack,), parts)
    with pytest.raises(InputError, match=r"name, family, threat_model in .*\.Nameless"):
        find(f"{__name__}.Nameless")


class Nameless(Attack):
    """An attack with nothing but an estimate."""

    estimates = InteractionEstimate

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        raise NotImplementedError


BY_DEFAULT = [kind for kind in REGISTRY.values() if not kind.for_comparison]


def test_attacks_are_all_that_are_listed_or_some_alone() -> None:
    assert [type(attack) for attack in chosen_attacks(published=True)] == list(REGISTRY.values())
    assert [attack.name for attack in chosen_attacks(["row-norm", Direction()])] == ["row-norm", "direction"]
    assert chosen_attacks([]) == []


def test_a_slow_attack_says_on_how_many_clients_an_audit_runs_it() -> None:
    """Without, it would run on all, also where nobody asked for slow ones."""
    assert [name for name, kind in REGISTRY.items() if kind.slow and kind.audited_victims is None] == []


def test_attacks_for_comparison_are_left_out_unless_they_are_asked_for() -> None:
    assert [type(attack) for attack in chosen_attacks()] == BY_DEFAULT
    left_out = [name for name, kind in REGISTRY.items() if kind.for_comparison]
    assert left_out
    assert {type(attack) for attack in published_beside(chosen_attacks())} == {REGISTRY[name] for name in left_out}
    first, second, *_ = left_out
    assert [type(attack) for attack in chosen_attacks([first])] == [REGISTRY[first]]
    with_first = chosen_attacks(also=[first])
    assert [type(attack) for attack in with_first] == [*BY_DEFAULT, REGISTRY[first]]
    assert REGISTRY[second] in {type(attack) for attack in published_beside(with_first)}
    assert published_beside(chosen_attacks(published=True)) == []


def test_neither_subclasses_nor_variants_are_for_comparison_because_their_base_is() -> None:
    kind = find("composition/idlg-labels")
    assert kind.for_comparison
    plain: type[Attack] = type("Sub", (kind,), {"name": "sub", "__module__": __name__})
    assert not plain.for_comparison
    marked: type[Attack] = type("Sub", (kind,), {"name": "sub", "for_comparison": True, "__module__": __name__})
    assert marked.for_comparison


def test_further_attacks_come_after_all_and_replace_those_of_their_class() -> None:
    kind = next(kind for kind in KNOWN if kind not in REGISTRY.values())
    name = f"{kind.family}/{kind.name}"
    assert [type(attack) for attack in chosen_attacks(also=[name])] == [*BY_DEFAULT, kind]
    own = find("recommendation/raifle")(max_iter=7)  # type: ignore[call-arg]
    chosen = chosen_attacks(also=[own, "direction"])
    assert [type(attack) for attack in chosen] == BY_DEFAULT
    assert [attack for attack in chosen if type(attack) is type(own)] == [own]


def test_attacks_for_comparison_run_if_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Direction, "for_comparison", True)
    without = chosen_attacks()
    assert [type(attack) for attack in without] == [kind for kind in BY_DEFAULT if kind is not Direction]
    assert Direction in [type(attack) for attack in published_beside(without)]
    for asked in (chosen_attacks(published=True), chosen_attacks(also=["direction"]), chosen_attacks(["direction"])):
        assert Direction in [type(attack) for attack in asked]
        assert Direction not in [type(attack) for attack in published_beside(asked)]


def test_no_subclass_is_for_comparison_because_its_base_is() -> None:
    class Published(Direction):
        name = "published"
        for_comparison = True

    class Better(Published):
        name = "better"

    assert (Published.for_comparison, Better.for_comparison) == (True, False)


def test_only_and_also_exclude_each_other() -> None:
    with pytest.raises(InputError, match=r"both, also row-norm, direction. Name all with only."):
        chosen_attacks(["direction"], ["row-norm", Direction()])
