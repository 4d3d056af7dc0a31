"""An attack looks the same on every page, and no two lines of a page look the same."""

from fedleak.evaluation.scores import AttackInfo
from fedleak.reports.figures.line_styles import COLOURS, line_styles
from tests.reports.toys import cell, table

NAMES = ("decaf", "decaf-match", "exact-counts", "llg", "soft-labels", "rlu", "closed-form", "decaf-shared")
LINES = {name: AttackInfo(role="published") for name in (*NAMES, "raifle", "direction")}


def of(*names: str, **lines: AttackInfo) -> dict[str, str]:
    rows = table(*(cell(name, 0.5) for name in (*names, *lines)), lines={**LINES, **lines})
    return {name: look.colour for name, look in line_styles(rows).items()}


def test_an_attack_has_one_colour_on_all_pages() -> None:
    assert of("decaf", "decaf-match")["decaf-match"] == of("decaf-match", "llg", "rlu")["decaf-match"]
    assert of("raifle")["raifle"] == of("raifle", "direction")["raifle"]


def test_no_two_attacks_look_the_same_however_many_there_are() -> None:
    many = {f"attack-{number}": AttackInfo(role="ours") for number in range(60)}
    rows = table(*(cell(name, 0.5) for name in (*NAMES, *many)), lines={**LINES, **many})
    found = line_styles(rows)
    assert len(set(found.values())) == len(found) == len(NAMES) + 60


def test_baselines_are_grey_and_references_black() -> None:
    found = of("decaf", guess=AttackInfo(role="baseline"), bound=AttackInfo(role="reference"))
    assert found["decaf"] in COLOURS
    assert len({found["guess"][place : place + 2] for place in (1, 3, 5)}) == 1
    assert found["bound"] == "#000000"
