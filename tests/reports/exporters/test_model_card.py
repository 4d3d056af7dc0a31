"""A block of a model card that the library of the Hub reads."""

from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard as Card
from huggingface_hub.repocard_data import model_index_to_eval_results

from fedleak.reports.exporters.model_card import ModelCard
from tests.reports.toys import LINES, cell, run, table
from tests.wording import lacking


def card(**options: Any) -> Any:
    results = table(cell("codebook", 0.7), cell("raifle", 0.6), cell("popularity", 0.52), lines=LINES)
    return Card(ModelCard(**options).content(run(results=results, experiment="e")))


def test_the_hub_reads_the_number_of_the_best_attack_with_its_interval() -> None:
    made = card()
    assert made.data.tags == ["federated-learning", "privacy"]
    (result,) = made.data.eval_results
    assert (result.metric_type, result.metric_value, result.dataset_name) == ("auc", 0.7, "d")
    assert not lacking(result.metric_name, "auc", "codebook", "0.670", "0.730", "n = 20")
    assert "what it clicked" in result.task_name
    name, again = model_index_to_eval_results(made.data.to_dict()["model-index"])
    assert (name, len(again)) == ("e", 1)


def test_model_and_data_set_have_the_names_of_the_hub() -> None:
    made = card(model="me/net", dataset="ylecun/mnist")
    assert made.data.model_name == "me/net"
    assert [(one.dataset_type, one.dataset_name) for one in made.data.eval_results] == [("ylecun/mnist", "d")]


def test_the_table_has_the_baseline_and_the_text_what_was_not_measured() -> None:
    text = card().text
    assert "| what it clicked | codebook | auc | 0.700 | 0.670 to 0.730 | 20 | popularity 0.520 |" in text
    assert "composition" in text.partition("not measured:")[2]


def test_a_strangers_name_is_no_markup(tmp_path: Path) -> None:
    results = table(cell("codebook", 0.7), lines=LINES)
    data = {"name": "<b>x</b> | [y](z)\n---", "sha256": "0"}
    path = tmp_path / "card.md"
    assert ModelCard(file=str(path)).export(run(results=results, data=data), tmp_path) == str(path)
    made = Card.load(path)
    assert "<b" not in made.text
    assert [one.dataset_name for one in made.data.eval_results] == [data["name"]]


def test_a_name_is_no_link_for_what_makes_html_of_the_text() -> None:
    data = {"name": "[x](javascript:1) <script>", "sha256": "0"}
    text = ModelCard().content(run(results=table(cell("codebook", 0.7), lines=LINES), data=data)).split("---\n", 2)[2]
    assert "&#91;x&#93;(javascript:1) &#60;script&#62;" in text
    assert "](" not in text


def test_a_run_in_which_nothing_was_measured_has_an_empty_table() -> None:
    results = table(cell("popularity", 0.5), lines=LINES)
    made = Card(ModelCard().content(run(results=results)))
    assert "| nothing |" in made.text
