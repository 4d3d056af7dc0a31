"""What several attacks on one view compute once: values by key, and the seconds that each took."""

import time
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

_Value = TypeVar("_Value")


class SharedWork:
    """Values that several attacks on one view need alike, such as simulated clients: the first attack computes them.

    The contract:

    * Each view is made with an object of its own, `View.shared`, which is handed on with it: all attacks that are run
      on the view get the same one, and an attack that is called alone needs nothing further. ``run(self, view, *,
      generator)`` stays the signature of every attack, and only those that share something name ``view.shared``; an
      argument of `run` would have to pass through every helper that computes such a value, and through every loop over
      attacks.
    * A part of a view (`View.select`), or a copy with other deltas, such as that of a control which sees the update of
      another client, is another view and starts with an empty object. Nothing that was computed from one client's
      update reaches an attack that is given another's.
    * A key names what is computed and every argument that it depends on besides the view.
    * The time of an attack includes that of the values it uses, whoever computed them: see `seconds_before`.

    Example:
        >>> shared = SharedWork()
        >>> shared.value(("sum", 3), lambda: 1 + 2 + 3)
        6
        >>> shared.start_attack()  # the next attack asks for the same, which is not computed again
        >>> shared.value(("sum", 3), lambda: 0)
        6
        >>> 0 < shared.seconds_before < 1  # what computing it took the first attack
        True
    """

    def __init__(self) -> None:
        self._values: dict[Hashable, object] = {}
        self._seconds: dict[Hashable, float] = {}
        self._computed_now: set[Hashable] = set()
        self._used: set[Hashable] = set()

    def __len__(self) -> int:
        """Number of values."""
        return len(self._values)

    def value(self, key: Hashable, compute: Callable[[], _Value]) -> _Value:
        """What `compute` returns, computed once for all attacks that ask for the same `key`."""
        if key not in self._values:
            start = time.perf_counter()
            self._values[key] = compute()
            self._seconds[key] = time.perf_counter() - start
            self._computed_now.add(key)
        self._used.add(key)
        return cast(_Value, self._values[key])

    def start_attack(self) -> None:
        """Counts `seconds_before` from here on for the next attack."""
        self._computed_now.clear()
        self._used.clear()

    @property
    def seconds_before(self) -> float:
        """Seconds that earlier attacks took for the values that the present one uses."""
        return sum(self._seconds[key] for key in self._used - self._computed_now)
