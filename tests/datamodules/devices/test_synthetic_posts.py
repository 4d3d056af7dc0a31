"""Generated writers have words of their own, which drift, and ratings that their words decide."""

import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.datamodules.devices.synthetic_posts import SyntheticPosts, synthetic_posts
from fedleak.datamodules.devices.user_examples import OwnedExamples


def frequencies(posts: OwnedExamples, chosen: torch.Tensor) -> torch.Tensor:
    """``(U, W)`` shares of words in some of each user's posts."""
    rows = [posts.features[chosen & (posts.owners == u)].flatten().bincount(minlength=60) for u in range(8)]
    counts = torch.stack(rows)[:, 2:].double()
    return counts / counts.sum(1, keepdim=True)


def distances(posts: OwnedExamples) -> tuple[float, float]:
    """Between the halves of one user, and of one user and the next."""
    early = torch.arange(len(posts)) % 200 < 100
    first, second = frequencies(posts, early), frequencies(posts, ~early)
    return float((first - second).abs().sum(1).mean()), float((first - second.roll(1, 0)).abs().sum(1).mean())


def test_habits_tell_users_apart_and_no_habit_does_not() -> None:
    own, other = distances(synthetic_posts(users=8, posts=200))
    assert own < 0.5 * other
    own, other = distances(synthetic_posts(users=8, posts=200, habit=0.0))
    assert own == pytest.approx(other, rel=0.15)


def test_drift_makes_the_halves_of_a_user_differ() -> None:
    steady, drifting = (distances(synthetic_posts(users=8, posts=200, drift=drift))[0] for drift in (0.0, 4.0))
    assert drifting > 2 * steady


def test_posts_are_padded_dated_and_rated() -> None:
    posts = synthetic_posts(users=3, posts=20, length=10)
    lengths = (posts.features > 0).sum(1)
    assert int(lengths.min()) >= 5
    assert int(lengths.max()) == 10
    assert torch.equal((posts.features > 0).int().diff(dim=1) > 0, torch.zeros(60, 9, dtype=torch.bool))
    assert sorted(set(posts.labels.tolist())) == [1, 2, 3, 4, 5]
    assert bool((posts.days.view(3, 20).diff(dim=1) == 1).all())


def test_the_same_seed_gives_the_same_posts() -> None:
    one, again, other = (synthetic_posts(users=3, posts=4, seed=seed).features for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    "options", [{"users": 1}, {"posts": 1}, {"vocabulary": 5}, {"habit": -1.0}, {"drift": -1.0}, {"length": 3}]
)
def test_impossible_writers_are_refused(options: dict[str, float]) -> None:
    (name, value), *_ = options.items()
    with pytest.raises(InputError, match=f"{name} of at least .*found {value}"):
        synthetic_posts(**options)  # type: ignore[arg-type]


def test_a_single_writer_is_refused() -> None:
    with pytest.raises(InputError, match="writers of at least 2"):
        SyntheticPosts(writers=1)


def test_every_device_has_at_most_so_many_examples() -> None:
    whole, few = (SyntheticPosts(writers=4, posts=20, device_examples=most) for most in (None, 3))
    for all_of_them, kept in zip(whole.client_examples(), few.client_examples(), strict=True):
        assert len(kept) == 3
        assert set(kept.tolist()) <= set(all_of_them.tolist())
