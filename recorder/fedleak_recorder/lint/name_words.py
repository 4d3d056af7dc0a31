"""Words of the names that programs give."""

import re

_BORDERS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")


def words_of(name: str) -> list[str]:
    """Words of a name in small letters, of any spelling.

    >>> words_of("patientID"), words_of("layer1.0/running_var"), words_of("num-examples")
    (['patient', 'id'], ['layer1', '0', 'running', 'var'], ['num', 'examples'])
    """
    return [word.lower() for word in _BORDERS.split(name[:400]) if word]


def last_words(name: str) -> list[str]:
    """Words of the last part of a name, behind its last slash.

    >>> last_words("metrics/age_min")
    ['age', 'min']
    """
    return words_of(name.rpartition("/")[2])
