"""Next to the questions is what was inferred of a client, or every client's value."""

import pandas as pd
import torch

from fedleak.core.estimates import Reconstruction
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, concat, score_table, with_setting
from fedleak.reports.figures.first_pictures import first_pictures
from fedleak.reports.questions import questions
from tests.reports.toys import LINES, cell, table
from tests.wording import lacking

WORDS = AttackInfo(role="ours", family="words", question="another", tells="which words")
RESULTS = table(cell("codebook", 0.9), cell("words", 0.8), cell("chance", 0.5), lines={**LINES, "words": WORDS})


def evaluation() -> Evaluation:
    common = {"setting": {"data": "d"}, "seed": 0, "victims": [1, 2, 3]}
    scores = [score_table(name, {"auc": [0.8, 0.9, 1.0]}, **common) for name in ("codebook", "chance")]  # type: ignore[arg-type]
    return Evaluation(scores=concat(scores), lines={**LINES, "words": WORDS})


def test_class_shares_are_of_the_client_with_the_median_error() -> None:
    found = evaluation()
    parts = [
        pd.DataFrame({"victim": victim, "class": [0, 1], "true": [0.5, 0.5], "inferred": [0.5 - wrong, 0.5 + wrong]})
        for victim, wrong in ((1, 0.3), (2, 0.0), (3, 0.1))
    ]
    shares = pd.concat(parts, ignore_index=True).assign(attack="codebook", seed=0, round=0, low=0.4, high=0.6)
    found.profiles = with_setting(shares, data="d")
    (drawn,) = first_pictures(found, RESULTS, questions(RESULTS), persons=True)
    assert not lacking(drawn.caption, "d:", "client 3", "codebook", "95%", "3 clients", "median")


def test_records_of_the_first_question_that_has_them_are_shown() -> None:
    found, images = evaluation(), torch.zeros(2, 1, 4, 4)
    found.pictures = {"words": Reconstruction(images, images)}
    (drawn,) = first_pictures(found, RESULTS, questions(RESULTS), persons=True)
    assert "what words makes of their updates" in drawn.caption


def test_without_content_every_client_has_a_dot_and_every_data_set_a_picture() -> None:
    (drawn,) = first_pictures(evaluation(), RESULTS, questions(RESULTS), persons=True)
    assert drawn.svg.count('data-client="2"') == 2
    rows = [
        cell(name, mean, data=data) for data in ("d", "e", "f") for name, mean in (("codebook", 0.9), ("chance", 0.5))
    ]
    two = first_pictures(evaluation(), table(*rows), questions(table(*rows)))
    assert [one.caption[:2] for one in two] == ["d:", "e:"]
    assert first_pictures(Evaluation(lines=dict(LINES)), RESULTS, questions(RESULTS)) == []
