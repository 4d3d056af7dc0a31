"""TAG finds the words of a short text by its gradient, and none of them in other updates."""

from typing import Any

import pytest

from fedleak.attacks.reconstruction.estimates import TextsEstimate
from fedleak.attacks.reconstruction.tag import Tag
from tests.attacks.runs import of_noise, of_others, run
from tests.published_text_toys import metric, short_texts

pytestmark = pytest.mark.integration


def test_a_short_text_is_found() -> None:
    view, truth = short_texts()
    estimate = run(Tag(max_iter=80), view, TextsEstimate)
    estimate.check(view)
    assert sum(metric(estimate, view, truth, "words-in-place")) / 2 >= 0.6


@pytest.mark.parametrize("decouple", [of_others, of_noise])
def test_an_update_of_somebody_else_shows_nothing(decouple: Any) -> None:
    view, truth = short_texts()
    estimate = run(Tag(max_iter=80), decouple(view), TextsEstimate)
    assert max(metric(estimate, view, truth, "words-in-place")) <= 0.2
