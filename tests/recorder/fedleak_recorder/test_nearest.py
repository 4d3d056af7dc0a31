import pytest

from fedleak_recorder.nearest import did_you_mean, nearest

_ATTACKS = ["interactions/direction", "composition/l1", "composition/exact-counts", "re-identification/reid-mlp"]


@pytest.mark.parametrize(
    ("word", "suggested"),
    [
        ("directoin", ["interactions/direction"]),
        ("Direction", ["interactions/direction"]),
        ("interactions/directoin", ["interactions/direction"]),
        ("exact_counts", ["composition/exact-counts"]),
        ("ec", ["composition/exact-counts"]),
        ("zzz", []),
        ("", []),
    ],
)
def test_names_are_suggested_by_spelling_last_part_and_initials(word: str, suggested: list[str]) -> None:
    assert nearest(word, _ATTACKS) == suggested


def test_at_most_three_names_are_suggested_once_each() -> None:
    names = ["layer1", "layer2", "layer3", "layer4", "layer1"]

    suggested = nearest("layer", names)

    assert len(suggested) == len(set(suggested)) == 3


def test_the_way_out_names_what_is_near_or_says_what_else_there_is() -> None:
    assert did_you_mean("epoch", ["epochs"], "Known: epochs.") == "Did you mean epochs?"
    assert did_you_mean("zzz", ["epochs"], "Known: epochs.") == "Known: epochs."
