"""The page of networks says what the attacks need, and leaves out no attack of a default audit."""

import re

import pytest

from docs.tools.network_map import PAGE, metric_of, page, recorded_for
from fedleak.attacks.composition.llg import LLG
from fedleak.attacks.recommendation.item_deltas import Direction
from fedleak.evaluation.registry import REGISTRY


@pytest.fixture(scope="module")
def text() -> str:
    return page()


def test_the_page_is_what_the_code_says(text: str) -> None:
    assert PAGE.read_text(encoding="utf-8") == text, "run make included"


@pytest.mark.inventory
def test_every_attack_of_a_default_audit_is_on_the_page(text: str) -> None:
    named = set(re.findall(r"`([^`]+)`", text))
    assert {kind.name for kind in REGISTRY.values() if not kind.baseline and not kind.for_comparison} <= named


def test_a_network_has_the_attacks_that_ask_for_it_and_no_others(text: str) -> None:
    (rankers,) = re.findall(r"^## `foltr-es`\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert "`metric-posterior`" in rankers
    assert "`decaf`" not in rankers


def test_needs_and_metrics_are_said_in_words() -> None:
    assert recorded_for([LLG]) == "updates; `images` (data that the server has); `labels` (data that the server has)"
    assert recorded_for([Direction]).endswith("updates of `item_embedding.weight`")
    assert metric_of(LLG) == "`l1`: assigns n of 100 examples of a client to a wrong class"
