import pytest

from attacks.registry import REGISTRY
from evaluation.runner import Evaluation
from evaluation.scores import AttackInfo
from reports.statement.measured import names_of

ATTACKS = [kind() for kind in REGISTRY.values()]


@pytest.mark.parametrize(
    ("family", "label", "active", "letter"),
    [
        ("recommendation", "raifle", False, "C"),
        ("recommendation", "raifle+prior", False, "C"),
        ("ranking", "codebook", True, "F"),
        ("record-membership", "candidate-fit", False, "D"),
        ("record-membership", "candidate-fit", True, "G"),
        ("interactions", "popularity", True, None),
        ("recommendation", "not-known", False, None),
    ],
)
def test_letter_is_that_of_an_active_adversary_if_the_server_deviated(
    family: str, label: str, active: bool, letter: str | None
) -> None:
    evaluation = Evaluation(lines={label: AttackInfo(family=family, active=active)})
    assert names_of({"family": family, "attack": label}, ATTACKS, evaluation).letter == letter
