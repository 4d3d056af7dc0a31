"""The bar of an evaluation: which attack runs, how much of the whole work is done, and the time left."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tqdm import tqdm

from protocol.progress import heard_by

_FORMAT = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
"""Short enough for 80 columns with any attack's name."""


class AttackBar:
    """A bar over all attacks, in victims attacked.

    Args:
        victims: by attack, how many victims it will attack, in all rounds together.
        show: False for no bar.
    """

    def __init__(self, victims: Mapping[str, int], *, show: bool) -> None:
        self._left: dict[str, float] = dict(victims)
        self._width = max((len(name) for name in victims), default=0)
        self._bar = tqdm(total=sum(victims.values()), bar_format=_FORMAT, dynamic_ncols=True, disable=not show)

    def __enter__(self) -> "AttackBar":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    @property
    def total(self) -> int:
        """Victims to be attacked, as far as is known."""
        return int(self._bar.total or 0)

    @property
    def done(self) -> float:
        """Victims attacked; of a view under way the share that its attack says is done."""
        return float(self._bar.n)

    def leave_out(self, attack: str) -> None:
        """An attack that cannot run is no work."""
        self._bar.total = self.total - self._left.pop(attack, 0)

    @contextmanager
    def attacking(self, attack: str, victims: int) -> Iterator[None]:
        """While one attack runs on one view.

        Args:
            attack: its name.
            victims: of the view.
        """
        self._bar.set_description_str(attack.ljust(self._width))
        said = 0.0

        def hear(share: float) -> None:
            nonlocal said
            if share > said:
                self._left[attack] = self._left.get(attack, 0) - (share - said) * victims
                self._bar.update(min((share - said) * victims, self.total - self.done))
                said = share

        with heard_by(hear):
            yield
        hear(1.0)
