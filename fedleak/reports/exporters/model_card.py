"""Block of a model card: what the server of the training could infer about clients, for people who get the model."""

import re
from collections.abc import Sequence
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
        asked = questions(run.results, None, run.gate)
        lacking, never = not_measured(run, asked)
        lacking = [question for question in lacking if question.answer.status == "unmeasured"]
        missing = list(dict.fromkeys([*(question.answer.family for question in lacking), *never]))
        dataset = {"type": self.dataset or run.data["name"], "name": run.data["name"]}
        index = {"name": self.model or run.experiment, "results": [_result(one, dataset) for one in asked]}
        tags = ["federated-learning", "privacy"]
        metadata = yaml.safe_dump(
            {"tags": tags, "model-index": [index]}, sort_keys=False, allow_unicode=True, width=100
        )
        text = _TEXT.format(
            data=_plain(run.data["name"]),
            rows="\n".join(_row(one) for one in asked) or "| nothing | | | | | | |",
            meanings=" ".join(meanings(list(dict.fromkeys(one.answer.metric for one in asked)))),
            missing="; ".join(map(_plain, missing)) or "nothing",
        )
        return f"---\n{metadata}---\n\n{text}"


def _result(one: Question, dataset: dict[str, str]) -> dict[str, Any]:
    row = one.answer.row
    assert row is not None  # a measured question has one
    about = f"{row['metric']} of {row['attack']} (95% interval {_interval(row)}, n = {row['n']})"
    where = {**dataset, **({"args": {"setting": one.where}} if one.where else {})}
    return {
        "task": {"type": "other", "name": f"privacy: infer {one.answer.inferred} from a client's update"},
        "dataset": where,
        "metrics": [{"type": row["metric"], "name": about, "value": float(row["mean"])}],
    }


def _row(one: Question) -> str:
    row = one.answer.row
    assert row is not None
    other = one.answer.baseline
    baseline = "none" if other is None else f"{other.name} {number(other.value)}"
    attack = row["attack"] if not one.where else f"{row['attack']}, {describe(setting_of(row))}"
    cells = (one.answer.inferred, attack, row["metric"], number(row["mean"]), _interval(row), str(row["n"]), baseline)
    return f"| {' | '.join(map(_plain, cells))} |"


def _interval(row: dict[str, Any]) -> str:
    ends: Sequence[float] = (row["low"], row["high"])
    return "unknown" if any(end != end for end in ends) else " to ".join(map(number, ends))


def _plain(text: str) -> str:
    """A text without markup; names of data and attacks may be a stranger's."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split())).translate(_REFERENCES)
