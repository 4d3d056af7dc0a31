"""For how many rounds the sums of a recording hide a client."""

from typing import Any

import pandas as pd

from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.scores import records
from fedleak.reports.statement.content import Revealed, Sums

_MEASURED, _PREDICTED = "rounds-to-reveal", "predicted-rounds-to-reveal"
ASSUMPTIONS = (
    "The server knows who took part in each round, under names that persist: it chooses and addresses them.",
    "Clients' data stay the same; where they change, a client is hidden for longer.",
    "It is about what adds up over clients: numbers of examples of a class, of words, of records.",
)


def sums(evaluation: Evaluation) -> Sums | None:
    """What an audit found about sums over rounds; None for a recording of single updates, or of one round."""
    table = evaluation.details.get("participation")
    if table is None:
        return None
    own, batched = records(table)[:2]
    if own["rounds"] < 2:
        return None
    scores = evaluation.scores
    found = [
        _revealed(str(name), rows)
        for name, rows in scores[scores["metric"] == _MEASURED].groupby("attack")
        if evaluation.lines[str(name)].role != "baseline" and rows["value"].notna().any()
    ]
    earliest = None if pd.isna(own["first after"]) else int(own["first after"])
    return Sums(
        sentence=_sentence(own, earliest, found),
        **{name: int(own[name]) for name in ("clients", "rounds", "rank", "determined")},
        earliest=earliest,
        measured=found,
        batched=str(batched["text"]),
        assumptions=list(ASSUMPTIONS),
    )


def _revealed(name: str, rows: pd.DataFrame) -> Revealed:
    values = rows.groupby("victim")["value"].min()
    kept = values.dropna()
    return Revealed(
        attack=name, clients=len(values), revealed=len(kept), earliest=int(kept.min()), mean=float(kept.mean())
    )


def _sentence(own: dict[str, Any], earliest: int | None, found: list[Revealed]) -> str:
    clients, rounds = int(own["clients"]), int(own["rounds"])
    times = [one.earliest for one in found] + ([] if earliest is None else [earliest])
    hidden = f"By what was tried, every client is hidden for {min(times) - 1 if times else rounds} rounds."
    determines = "separates no client"
    if earliest is not None:
        determined = f"{int(own['determined'])} of {clients} clients"
        determines = f"determines what is additive of {determined} in {rounds} rounds, of the first after {earliest}"
    measured = (
        f"{one.attack} revealed {one.revealed} of {one.clients}, the first after {one.earliest}" for one in found
    )
    return f"{hidden} Who took part {determines}. Measured: {'; '.join(measured) or 'no attack revealed a client'}."
