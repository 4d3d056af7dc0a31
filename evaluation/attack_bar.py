"""Progress bar of an evaluation: the attack that runs, the share of the work that is done, and the time left."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tqdm import tqdm

from protocol.progress import progress_listener

_FORMAT = "{percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
"""Fits into 80 columns with the name of any attack; the postfix begins with a comma."""


class AttackBar:
    """Progress bar over all attacks, in victims attacked.

    Args:
        victims: number of victims by attack, in all rounds together.
        show: whether to show the bar.
    """

    def __init__(self, victims: Mapping[str, int], *, show: bool) -> None:
        self._left: dict[str, float] = dict(victims)
        self._width = max((len(name) for name in victims), default=0) + len(" round 999")
        self._bar = tqdm(total=sum(victims.values()), bar_format=_FORMAT, dynamic_ncols=True, disable=not show)

    def __enter__(self) -> "AttackBar":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    @property
    def total(self) -> int:
        """Number of victims to attack, as far as it is known."""
        return int(self._bar.total or 0)

    @property
    def done(self) -> float:
        """Number of victims attacked, with the finished share of the current view."""
        return float(self._bar.n)

    def leave_out(self, attack: str) -> None:
        """Removes the work of an attack that cannot run."""
        self._bar.total = self.total - self._left.pop(attack, 0)

    @contextmanager
    def attacking(self, attack: str, victims: int, round: int | None = None) -> Iterator[None]:
        """Context in which an attack runs on a view with a number of victims, of one round or of all together."""
        where = "" if round is None else f" round {round}"
        self._bar.set_postfix_str(f"{attack}{where}".ljust(self._width))
        done = 0.0

        def advance(share: float) -> None:
            nonlocal done
            if share > done:
                step, done = (share - done) * victims, share
                self._left[attack] = self._left.get(attack, 0) - step
                self._bar.update(min(step, self.total - self.done))

        with progress_listener(advance):
            yield
        advance(1.0)
