"""``attack.py list``: table of all attacks."""

from reports.attack_descriptions import described
from reports.text_table import text_table

_COLUMNS = ("name", "kind", "paper", "cost", "needs")


def list_attacks() -> int:
    """Prints every attack by question: exact or statistical, its paper, its cost and what it needs."""
    questions: dict[str, list[tuple[str, ...]]] = {}
    for kind in described():
        questions.setdefault(f"{kind.family}: {kind.inferred}", []).append(
            (
                kind.name,
                "baseline" if kind.baseline else "exact" if kind.exact else "statistical",
                "; ".join(kind.references) or ("" if kind.baseline else "ours"),
                kind.cost,
                ", ".join(kind.needs),
            )
        )
    for question, rows in questions.items():
        print("\n".join(["", question, *text_table(_COLUMNS, rows)]))
    return 0
