"""Sentences are compared by what they must say, so that another wording breaks no test."""


def lacking(text: str, *parts: str) -> list[str]:
    """The parts that a text lacks, each looked for behind the one before it."""
    missing, behind = [], 0
    for part in parts:
        place = text.find(part, behind)
        if place < 0:
            missing.append(part)
        else:
            behind = place + len(part)
    return missing
