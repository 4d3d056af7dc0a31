"""Cutting a view: every field either follows its victims or belongs to the whole view, and none is forgotten."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.client.simulated_clients import as_released
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.release import Release
from fedleak.core.view import RoundView, View

VICTIMS, KNOWN = 4, 3
WHOLE = {
    *("round", "model", "row_parameters", "releases", "rounded", "algorithm", "auxiliary", "manipulation"),
    *("round_models", "by_round", "read_parts", "known"),
}
"""Fields that say the same of any of the victims."""
BY_THEMSELVES = {"pairs", "earlier", "shared"}
"""Fields that are cut in a way of their own."""
KINDS = (RoundView, History)
FIELDS = [(kind, field.name) for kind in KINDS for field in dataclasses.fields(kind)]


class Margin:
    """An algorithm of one kind."""

    slope_at_zero, learning_rate = -0.5, 0.1


def common(victims: int) -> dict[str, Any]:
    """Every field that both kinds of views have, each number of a victim different."""
    rows = torch.arange(victims)
    return {
        "round": 7,
        "pseudonyms": 100 + rows,
        "example_counts": 10 + rows,
        "deltas": {"table": torch.rand(victims, 2, 3), "bias": torch.rand(victims, 5)},
        "model": {"table": torch.rand(9, 3), "bias": torch.rand(5)},
        "row_parameters": frozenset({"table"}),
        "served": torch.arange(2 * victims).reshape(victims, 2),
        "client_models": {"bias": torch.rand(victims, 5)},
        "releases": (Release(clip=1.0, noise_scale=0.1, parameters=("bias",)),),
        "rounded": frozenset({"bias"}),
        "algorithm": Margin(),
        "updates": torch.rand(victims, 2),
        "messages": 1 + rows,
        "participants": 100 + torch.stack([rows, rows.roll(1)], 1),
        "auxiliary": {"images": torch.rand(8, 3)},
        "priors": {"leaning": torch.rand(victims), "popularity": torch.rand(victims, 2)},
        "manipulation": "noise",
    }


def of_round(victims: int) -> RoundView:
    lists = torch.arange(2 * victims).reshape(victims, 2)
    earlier = (RoundView(**common(victims)),)
    return RoundView(**common(victims), lists=lists, features=torch.rand(victims, 2, 6), earlier=earlier)


def of_rounds(victims: int) -> History:
    return History(
        **common(victims),
        sent_in=20 + torch.arange(victims),
        pairs=torch.tensor([[0, 1], [2, 3], [1, 4], [3, 6], [5, 2]]),
        round_models={3: {"bias": torch.rand(5)}},
        by_round={3: RoundView(**common(victims))},
        read_parts=lambda *_: iter(()),
        known=History(**common(KNOWN), sent_in=torch.arange(KNOWN)),
    )


def small(kind: type[View], victims: int = VICTIMS) -> Any:
    """A view in which every field is given."""
    view = of_round(victims) if kind is RoundView else of_rounds(victims)
    view.shared.value("key", lambda: 1)
    return view


def same(one: Any, other: Any) -> bool:
    """Whether two values of a field are equal, tensor by tensor."""
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    return bool(one is other or one == other)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_either_of_the_victims_or_of_the_whole_view(kind: type[View]) -> None:
    """Whoever adds a field says here, or in `of_victims`, which it is."""
    names = {field.name for field in dataclasses.fields(kind)}
    assert names <= {*kind.of_victims, *WHOLE, *BY_THEMSELVES}
    assert not {*kind.of_victims} & (WHOLE | BY_THEMSELVES)
    view = small(kind)
    assert [name for name in names if getattr(view, name) in (None, (), frozenset())] == []


@pytest.mark.parametrize("positions", [[2, 0], [1], [3, 2, 1, 0], []], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_select_cuts_what_is_of_the_victims_and_keeps_the_rest(kind: type[View], positions: list[int]) -> None:
    view = small(kind)
    part = view.select(torch.tensor(positions, dtype=torch.int64))
    names = [name for of_kind, name in FIELDS if of_kind is kind]
    assert names
    assert [name for name in names if not is_cut(kind, name, getattr(view, name), getattr(part, name), positions)] == []


def is_cut(kind: type[View], name: str, before: Any, after: Any, positions: list[int]) -> bool:
    """Whether a field of a part of a view is what its positions leave of the field of the view."""
    chosen = torch.tensor(positions, dtype=torch.int64)
    if name in WHOLE:
        return same(after, before)
    if name in kind.of_victims:
        whole = before if isinstance(before, Mapping) else {"": before}
        cut = {key: value[chosen] for key, value in whole.items()}
        return same(after, cut if isinstance(before, Mapping) else cut[""])
    if name == "shared":
        return (len(before), len(after)) == (1, 0 if positions != list(range(VICTIMS)) else 1)
    if name == "earlier":
        return [one.pseudonyms.tolist() for one in after] == [(100 + chosen).tolist()]
    # Positions in the view, then in `known`: of the pairs of the old view those whose messages all remain.
    moved = {old: new for new, old in enumerate([*positions, *range(VICTIMS, VICTIMS + KNOWN)])}
    return bool(after.tolist() == [[moved[a], moved[b]] for a, b in before.tolist() if a in moved and b in moved])


def test_a_part_of_a_view_and_a_copy_of_it_share_nothing_with_it() -> None:
    view = of_round(VICTIMS)
    assert view.shared.value("key", lambda: 1) == 1
    assert view.select(torch.arange(VICTIMS)).shared is view.shared
    others = {name: value.roll(1, 0) for name, value in view.deltas.items()}
    for other in (view.select(torch.tensor([1])), dataclasses.replace(view, deltas=others)):
        assert other.shared.value("key", lambda: 2) == 2
    assert view.shared.value("key", lambda: 3) == 1


def test_rounds_of_a_history_in_memory_have_their_own_model_and_messages() -> None:
    whole = dataclasses.replace(of_rounds(VICTIMS), by_round={}, sent_in=torch.tensor([3, 5, 3, 5]), pairs=None)
    first, second = whole.each_round()
    assert (first.round, first.pseudonyms.tolist(), second.pseudonyms.tolist()) == (3, [100, 102], [101, 103])
    assert first.model is whole.round_models[3]
    assert second.model is whole.model


def test_all_victims_in_their_order_are_the_view_itself() -> None:
    view = small(RoundView)
    assert view.select(torch.arange(VICTIMS)) is view


def test_require_gives_the_algorithm_of_a_kind_or_says_which_it_found() -> None:
    view = small(RoundView)
    found: object = view.require(Margin)
    assert found is view.algorithm
    with pytest.raises(ViewError, match="Margin"):
        view.require(dict)
    with pytest.raises(ViewError, match="got none"):
        dataclasses.replace(view, algorithm=None).require(Margin)


def test_needs_are_fields_or_entries_of_them() -> None:
    view = small(History)
    needs = ("served", "deltas:table", "priors:leaning", "auxiliary:images", "pairs", "manipulation")
    assert view.missing(needs) == []
    bare = dataclasses.replace(view, served=None, deltas={}, priors={}, auxiliary={}, pairs=None, manipulation=None)
    assert bare.missing(needs) == list(needs)
    with pytest.raises(ViewError, match="gradients"):
        view.missing(("gradients",))


def test_what_all_victims_share_is_shared_by_those_that_remain() -> None:
    """Features of items that everybody was served are not copied: learners work faster on what is shared."""
    features = torch.rand(2, 6).expand(VICTIMS, 2, 6)
    view = dataclasses.replace(of_round(VICTIMS), features=features)
    kept = view.select(torch.tensor([3, 1])).features
    assert kept is not None
    assert kept.stride(0) == 0
    assert torch.equal(kept, features[:2])


def test_clip_factors_scale_the_joint_norm_of_a_releases_parameters() -> None:
    deltas = {"a": torch.tensor([[3.0, 0.0], [0.3, 0.0]]), "b": torch.tensor([[4.0], [0.4]]), "c": torch.ones(2, 1)}
    clipped = dataclasses.replace(small(RoundView), releases=(Release(clip=1.0, parameters=("a", "b")),))
    torch.testing.assert_close(clipped.clip_factors("a", deltas), torch.tensor([0.2, 1.0]))
    torch.testing.assert_close(clipped.clip_factors("c", deltas), torch.ones(2))


def test_lengths_of_any_shape_have_the_clip_factors_of_updates_so_long() -> None:
    releases = tuple(Release(clip=clip, parameters=("a", "b")) for clip in (4.0, 1.0))
    clipped = dataclasses.replace(small(RoundView), releases=releases)
    squares = torch.tensor([[25.0, 0.25], [4.0, 0.0]])  # of both parameters together, under the name of the first
    expected = torch.tensor([[0.2, 1.0], [0.5, 1.0]])
    torch.testing.assert_close(clipped.clip_factors_of("a", {"a": squares}), expected)


def test_clip_factors_of_two_clips_are_those_of_simulated_releases() -> None:
    deltas = {"a": torch.tensor([[6.0, 8.0], [0.3, 0.4]]), "b": torch.tensor([[10.0], [0.1]])}
    for clips in (((5.0, ("a",)), (1.0, ("a",))), ((1.0, ("a",)), (5.0, ("a",))), ((5.0, ("b", "a")), (1.0, ("a",)))):
        releases = tuple(Release(clip=clip, parameters=names) for clip, names in clips)
        clipped = dataclasses.replace(small(RoundView), releases=releases)
        sent = as_released(clipped, deltas, generator=torch.Generator())
        for name, delta in deltas.items():
            torch.testing.assert_close(delta * clipped.clip_factors(name, deltas)[:, None], sent[name])
        assert clipped.clip("a") == 1
        assert float(sent["a"].norm(dim=1).max()) == pytest.approx(1)
