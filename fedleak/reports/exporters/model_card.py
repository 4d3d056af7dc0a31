"""Block of a model card: what the server of the training could infer about clients, for people who get the model."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from fedleak.core.io.files import write_whole
from fedleak.core.metric_table import meanings
from fedleak.evaluation.run import Run
from fedleak.evaluation.scores import describe, number, setting_of
from fedleak.reports.exporters.exporter import Exporter
from fedleak.reports.questions import Question, not_measured, questions

_MARKUP = re.compile(r"([\\`*_{}|#])")
_REFERENCES = str.maketrans({sign: f"&#{ord(sign)};" for sign in "<>[]"})
"""Character references of what makes elements and links. A backslash is known to Markdown only, and the text may be
read by what makes HTML of it."""
_TEXT = """\
## What the server of the federated training can infer about its clients

{data}: measured by attacks of fedleak on what the server received. A number is the mean over n clients with its 95%
interval, for the attack that infers most of those that ran, chosen on the same clients. These are lower bounds on the
leak: other attacks may infer more, and other clients may be more exposed. They are about updates during the training,
not about who can query the finished model.

| The server infers | Attack | Metric | Value | 95% interval | n | Best baseline |
|---|---|---|---|---|---|---|
{rows}

{meanings}

Questions that were not measured: {missing}.
"""


@dataclass(frozen=True)
class ModelCard(Exporter):
    """Markdown with metadata in YAML, as model cards of Hugging Face have it: paste both into the card of your model.

    The metadata are a ``model-index`` with a result per question; its interval is in the name of the metric, because
    the format has no field for intervals. The text is a table with the same numbers, the best baselines without the
    update, and what was not measured.

    Attributes:
        model: name of the model; that of the run by default.
        dataset: identifier of the data set on the Hub; the name in the recording by default.
        file: path of the file; ``model-card.md`` in the folder of the run by default.
    """

    name: ClassVar[str] = "model-card"

    model: str | None = None
    dataset: str | None = None
    file: str | None = None

    def export(self, run: Run, directory: Path) -> str:
        path = directory / "model-card.md" if self.file is None else Path(self.file)
        write_whole(path, self.content(run).encode())
        return str(path)

    def content(self, run: Run) -> str:
        """Content of the file."""
        measured = questions(run.results, None, run.gate)
        lacking, not_asked = not_measured(run, measured)
        # Questions that do not apply to the system are not missing.
        unmeasured = [question.answer.family for question in lacking if question.answer.status == "unmeasured"]
        missing = list(dict.fromkeys([*unmeasured, *not_asked]))
        dataset = {"type": self.dataset or run.data["name"], "name": run.data["name"]}
        results = [_result(question, dataset) for question in measured]
        metadata = yaml.safe_dump(
            {
                "tags": ["federated-learning", "privacy"],
                "model-index": [{"name": self.model or run.experiment, "results": results}],
            },
            sort_keys=False,
            allow_unicode=True,
            width=100,
        )
        metrics = list(dict.fromkeys(question.answer.metric for question in measured))
        text = _TEXT.format(
            data=_plain(run.data["name"]),
            rows="\n".join(map(_row, measured)) or "| nothing | | | | | | |",
            meanings=" ".join(meanings(metrics)),
            missing="; ".join(map(_plain, missing)) or "nothing",
        )
        return f"---\n{metadata}---\n\n{text}"


def _result(question: Question, dataset: dict[str, str]) -> dict[str, Any]:
    """Entry of the metadata for a measured question."""
    row = question.answer.row
    assert row is not None  # a measured question has one
    name = f"{row['metric']} of {row['attack']} (95% interval {_interval(row)}, n = {row['n']})"
    dataset_in_setting: dict[str, Any] = dict(dataset)
    if question.where:
        dataset_in_setting["args"] = {"setting": question.where}
    return {
        "task": {"type": "other", "name": f"privacy: infer {question.answer.inferred} from a client's update"},
        "dataset": dataset_in_setting,
        "metrics": [{"type": row["metric"], "name": name, "value": float(row["mean"])}],
    }


def _row(question: Question) -> str:
    """Row of the text's table for a measured question."""
    answer = question.answer
    row = answer.row
    assert row is not None
    # Rows of several data sets or runs say of which they are.
    attack = row["attack"]
    if question.where:
        attack = f"{attack}, {describe(setting_of(row))}"
    baseline = "none"
    if answer.baseline is not None:
        baseline = f"{answer.baseline.name} {number(answer.baseline.value)}"
    cells = (
        answer.inferred,
        attack,
        row["metric"],
        number(row["mean"]),
        _interval(row),
        str(row["n"]),
        baseline,
    )
    return f"| {' | '.join(map(_plain, cells))} |"


def _interval(row: dict[str, Any]) -> str:
    if math.isnan(row["low"]) or math.isnan(row["high"]):
        return "unknown"
    return f"{number(row['low'])} to {number(row['high'])}"


def _plain(text: str) -> str:
    """A text without markup; names of data and attacks may be a stranger's."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split())).translate(_REFERENCES)
