"""``attack.py list``: table of all attacks."""

from reports.attack_descriptions import described
from reports.text_table import text_table

_COLUMNS = ("name", "kind", "paper", "cost", "taxonomies", "needs")


def list_attacks() -> int:
    """Prints every attack by question: exact or statistical, its paper, its cost and what it needs.

    The column of taxonomies has the names in NIST AI 100-2, MITRE ATLAS and OWASP AISVS and the letter of the threat
    model, see docs/taxonomies.md.
    """
    questions: dict[str, list[tuple[str, ...]]] = {}
    for kind in described():
        questions.setdefault(f"{kind.family}: {kind.inferred}", []).append(
            (
                kind.name,
                "baseline" if kind.baseline else "exact" if kind.exact else "statistical",
                "; ".join(kind.references) or ("" if kind.baseline else "ours"),
                kind.cost,
                " ".join(kind.names),
                ", ".join(kind.needs),
            )
        )
    for question, rows in questions.items():
        print("\n".join(["", question, *text_table(_COLUMNS, rows)]))
    return 0
