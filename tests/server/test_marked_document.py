"""A mark that marks nothing is refused."""

import math
from typing import Any

import pytest

from fedleak.core.errors import InputError
from fedleak.server.marked_document import MarkedDocument


@pytest.mark.parametrize("value", [0, 0.0, math.nan, math.inf, "ten", None])
def test_a_value_that_marks_nothing_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="other than 0"):
        MarkedDocument(value=value)
