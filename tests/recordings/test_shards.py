"""Views of shards that a system recorded, number by number."""

from pathlib import Path

import numpy as np

from fedleak.core.view import POPULARITY
from fedleak.recordings.recording import Recording
from fedleak_recorder import Recorder


def test_popular_items_of_other_users_are_those_of_the_served_ones(tmp_path: Path) -> None:
    """The table ends before the last item that was served, which has the number of the last in the table."""
    popularity = np.array([[7, 5, 3], [8, 6, 4]])
    with Recorder(tmp_path, parameters={"bias": (2,)}, auxiliary={"popularity_of_others": popularity}) as recorder:
        sent = {name: ({"bias": np.zeros(2, np.float32)}, 1) for name in ("a", "b")}
        recorder.round(0, model={"bias": np.zeros(2)}, updates=sent, served={"a": [0, 2, 9], "b": [1]})
    (view,) = Recording(tmp_path).views()
    for client, served, found in zip(view.pseudonyms, view.served_items, view.priors[POPULARITY], strict=True):
        own = popularity[int(client) % 2]
        expected = [0 if item < 0 else own[min(int(item), 2)] for item in served]
        assert found.tolist() == expected
