"""Sixty of the 300 hostile files: nothing that they name is opened, imported, started or asked for.

``python -m tests.fuzz.hostile`` opens all of them.
"""

import pytest

from tests.fuzz.hostile import COUNT, answers, table
from tests.fuzz.hostile_controls import CONTROLS
from tests.fuzz.hostile_files import KINDS, kind_of

pytestmark = pytest.mark.integration
_EVERY = 5


def test_the_kinds_are_spread_over_all_numbers() -> None:
    assert sum(kind.share for kind in KINDS) == COUNT
    assert sorted(kind_of(number).name for number in range(COUNT)) == sorted(
        k.name for k in KINDS for _ in range(k.share)
    )
    assert {kind_of(number).name for number in range(0, COUNT, _EVERY)} == {kind.name for kind in KINDS}


def test_a_hostile_file_leads_nowhere_and_each_control_is_seen() -> None:
    found = list(answers(0, range(0, COUNT, _EVERY), CONTROLS))
    harmless = [one for one in found if str(one["number"]).startswith("harmless")]
    assert [one["outcome"] for one in harmless] == ["accepted"] * len(harmless)
    # Of a harmless file, only what the system says of itself is opened beside the project and the interpreter.
    usual = [event for one in harmless for event in one["found"]]
    assert all(kind == "file" and what.startswith(("/proc/", "/sys/", "/usr/", "/etc/")) for kind, what in usual), usual
    unseen = [one["name"] for one in found if one["number"] in CONTROLS and not one["found"]]
    assert not unseen, f"{unseen} went unnoticed, so that the rest says nothing"
    hostile = [one for one in found if isinstance(one["number"], int)]
    assert len(hostile) == COUNT // _EVERY
    led = [one for one in hostile if one["found"]]
    assert not led, led
    assert {one["outcome"] for one in hostile} <= {"refused", "accepted"}, table(hostile)
    assert sum(one["outcome"] == "refused" for one in hostile) > COUNT // _EVERY // 2
