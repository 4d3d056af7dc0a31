"""A row of the table of a check of releases."""

import math

from fedleak.core.estimates import Detail

_COLUMNS = ("measured", "declared", "low", "high", "p")
"""Numbers of a row, None where a check has none."""


def table_row(check: str, parameter: str, outcome: str, clients: int, text: str, **numbers: float | None) -> Detail:
    """A row: a check, what it was made on, the outcome, the clients, numbers, without those not finite, a sentence."""
    columns: dict[str, float | None] = dict.fromkeys(_COLUMNS)
    for name, number in numbers.items():
        if number is not None and math.isfinite(number):
            columns[name] = float(number)
    return {"check": check, "parameter": parameter, "outcome": outcome, "clients": clients, **columns, "text": text}
