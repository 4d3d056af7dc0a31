"""For how many rounds the sums of a recording hide a client."""

from typing import Any

import pandas as pd

from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.scores import records
from fedleak.reports.statement.sums_content import Revealed, Sums

_MEASURED = "rounds-to-reveal"
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
    # The rows are of the recorded participation, and of one in which clients always take part in the same groups.
    recorded, batched = records(table)[:2]
    if recorded["rounds"] < 2:
        return None
    scores = evaluation.scores
    revealed = []
    for name, rows in scores[scores["metric"] == _MEASURED].groupby("attack"):
        is_attack = evaluation.lines[str(name)].role != "baseline"
        if is_attack and rows["value"].notna().any():
            revealed.append(_revealed(str(name), rows))
    earliest = None if pd.isna(recorded["first after"]) else int(recorded["first after"])
    return Sums(
        sentence=_sentence(recorded, earliest, revealed),
        clients=int(recorded["clients"]),
        rounds=int(recorded["rounds"]),
        rank=int(recorded["rank"]),
        determined=int(recorded["determined"]),
        earliest=earliest,
        measured=revealed,
        batched=str(batched["text"]),
        assumptions=list(ASSUMPTIONS),
    )


def _revealed(name: str, rows: pd.DataFrame) -> Revealed:
    """After how many rounds an attack reveals clients; NaN is a client that it does not reveal."""
    rounds_by_client = rows.groupby("victim")["value"].min()
    rounds_to_reveal = rounds_by_client.dropna()
    return Revealed(
        attack=name,
        clients=len(rounds_by_client),
        revealed=len(rounds_to_reveal),
        earliest=int(rounds_to_reveal.min()),
        mean=float(rounds_to_reveal.mean()),
    )


def _sentence(participation: dict[str, Any], earliest: int | None, revealed: list[Revealed]) -> str:
    clients = int(participation["clients"])
    rounds = int(participation["rounds"])
    # A client is hidden until the round before the first that is revealed, by linear algebra or by an attack.
    times = [attack.earliest for attack in revealed]
    if earliest is not None:
        times.append(earliest)
    hidden_rounds = min(times) - 1 if times else rounds
    determines = "separates no client"
    if earliest is not None:
        determined = f"{int(participation['determined'])} of {clients} clients"
        determines = f"determines what is additive of {determined} in {rounds} rounds, of the first after {earliest}"
    measured = "no attack revealed a client"
    if revealed:
        measured = "; ".join(
            f"{attack.attack} revealed {attack.revealed} of {attack.clients}, the first after {attack.earliest}"
            for attack in revealed
        )
    return (
        f"By what was tried, every client is hidden for {hidden_rounds} rounds."
        f" Who took part {determines}. Measured: {measured}."
    )
