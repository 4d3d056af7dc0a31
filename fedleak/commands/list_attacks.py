"""``fedleak list``: a line for each question, or the attacks: all, of one question, or those that fit a recording."""

import difflib
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedleak.core.errors import require
from fedleak.evaluation.attack_descriptions import AttackDescription, described
from fedleak.evaluation.kept_fits import kept_misfits
from fedleak.evaluation.reasons import Reason
from fedleak.reports.text_table import text_table, wrapped_table

_COLUMNS = ("name", "kind", "threat\nmodel", "paper, cost", "needs")
_WIDEST = 100
"""Largest number of columns of the text."""


_NEEDED = {
    "algorithm": "training algorithm",
    "auxiliary": "further data",
    "deltas": "updates",
    "features": "item features",
    "known": "known senders",
    "learner": "training algorithm",
    "lists": "ranked lists",
    "model": "model",
    "pairs": "pairs",
    "participants": "clients of each sum",
    "releases": "declared noise",
    "sent_in": "several rounds",
    "served": "served items",
}
"""What a recording holds, in words, by the beginning of a need."""


def list_attacks(
    all: bool = False,
    question: str | None = None,
    fits: str | None = None,
    learner: str | None = None,
    learner_arguments: dict[str, Any] | None = None,
) -> int:
    """Prints a line for each question, or attacks by question.

    Of an attack, it says whether it is exact or statistical, its threat model, its paper, its cost and what it needs.
    The threat model is a letter; with the names of the question in NIST AI 100-2, MITRE ATLAS and OWASP AISVS, it is
    explained in docs/theory/taxonomies.md.

    Args:
        all: whether to print the attacks of every question.
        question: family of attacks, or a word of its name, whose attacks are printed; None for every question.
        fits: folder of a recording, of which the attacks are printed that it has the data for; then the others, with
            the reason.
        learner: learner in place of the one in the recording's manifest, see `open_recording`.
        learner_arguments: its arguments.

    Raises:
        InputError: there is no such question or recording.
    """
    chosen = _of_question(described(), question)
    width = min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)
    if fits is None:
        require(learner is None, "--fits DIR before --learner", f"--learner {learner}", "Name the recording.")
        lines = _by_family(chosen, width) if all or question is not None else _questions(chosen)
        print("\n".join(lines))
        return 0
    missing = _misfits(fits, learner, learner_arguments, [f"{one.family}/{one.name}" for one in chosen])
    print("\n".join(_by_family([one for one in chosen if f"{one.family}/{one.name}" not in missing], width)))
    print(f"\n{len(chosen) - len(missing)} of {len(chosen)} attacks fit {Path(fits)}.")
    by_reason: dict[str, list[str]] = {}
    for name, reason in missing.items():
        by_reason.setdefault(reason.sentence, []).append(name)
    for sentence, names in by_reason.items():
        print(textwrap.fill(f"{', '.join(names)}: {sentence}.", width, subsequent_indent="  ", break_on_hyphens=False))
    return 0


def _misfits(
    folder: str, learner: str | None, learner_arguments: dict[str, Any] | None, names: Sequence[str]
) -> dict[str, Reason]:
    """Reason by ``family/name`` of the attacks that do not fit a recording."""
    if learner is None and not learner_arguments:
        return kept_misfits(Path(folder), names)
    # A learner may be the user's own code, of which the cache knows nothing.
    from fedleak.commands.open_recording import open_recording
    from fedleak.evaluation.fitting import misfits
    from fedleak.evaluation.registry import REGISTRY

    return misfits(open_recording(folder, learner, learner_arguments), [REGISTRY[name]() for name in names])


def _of_question(attacks: Sequence[AttackDescription], question: str | None) -> list[AttackDescription]:
    """Attacks of a family, or of all families with a word in their names."""
    chosen = [one for one in attacks if question is None or question in (one.family, *one.family.split("-"))]
    families = list(dict.fromkeys(one.family for one in attacks))
    near = difflib.get_close_matches(str(question), [*families, *(w for one in families for w in one.split("-"))], n=1)
    way_out = f"Did you mean {near[0]}?" if near else f"Questions: {', '.join(families)}."
    require(chosen, "--question: a family of attacks, or a word of its name", repr(question), way_out)
    return chosen


def _questions(attacks: Sequence[AttackDescription]) -> list[str]:
    """A line for each question: how many attacks and baselines there are, and what all of them need."""
    families: dict[str, list[AttackDescription]] = {}
    for attack in attacks:
        families.setdefault(attack.family, []).append(attack)
    rows = []
    for family, of_family in families.items():
        baselines = sum(attack.baseline for attack in of_family)
        # The first line of a family's documentation: "Attacks on ...: the question? A remark."
        question = of_family[0].question.rpartition(": ")[2]
        end = question.find("?") + 1
        asked = question[:end] if end else question
        count = str(len(of_family) - baselines)
        rows.append((family, count, str(baselines), _common_needs(of_family), asked))
    header = "question", "attacks", "baselines", "every attack needs", "asks"
    numeric = [False, True, True, False, False]
    lines = text_table(header, rows, numeric)
    return [*lines, "", "fedleak list --question NAME prints its attacks, --all those of every question."]


def _common_needs(attacks: Sequence[AttackDescription]) -> str:
    """What every attack of a question needs, without its baselines, in words."""
    measured = [attack for attack in attacks if not attack.baseline] or attacks
    common = [_NEEDED.get(need.partition(":")[0], need) for need in measured[0].needs]
    for attack in measured[1:]:
        needs = {_NEEDED.get(need.partition(":")[0], need) for need in attack.needs}
        common = [word for word in common if word in needs]
    return ", ".join(dict.fromkeys(common)) or "nothing"


def _by_family(attacks: Sequence[AttackDescription], width: int) -> list[str]:
    families: dict[str, dict[str, list[AttackDescription]]] = {}
    for one in attacks:
        families.setdefault(f"{one.family}: {one.question}", {}).setdefault(one.inferred, []).append(one)
    lines: list[str] = []
    for heading, questions in families.items():
        lines += ["", *textwrap.wrap(heading, width)]
        for inferred, of_question in questions.items():
            lines += ["", *textwrap.wrap(f"Infers {inferred}{_taxonomies(of_question)}", width)]
            lines += wrapped_table(_COLUMNS, [_row(one) for one in of_question], width)
    return lines[1:]


def _taxonomies(attacks: Sequence[AttackDescription]) -> str:
    """Names of a question in public taxonomies, in parentheses; with those of single attacks that differ."""
    by_names: dict[str, list[str]] = {}
    for one in attacks:
        by_names.setdefault(" ".join(one.names[:-1]), []).append(one.name)
    common, *others = sorted(by_names, key=lambda names: -len(by_names[names]))
    words = [common, *(f"{', '.join(by_names[names])}: {names}" for names in others)]
    return f" ({'; '.join(words)})" if any(by_names) else ""


def _row(one: AttackDescription) -> tuple[str, ...]:
    kind = "baseline" if one.baseline else "exact" if one.exact else "statistical"
    paper = "; ".join(one.references) or ("" if one.baseline else "ours")
    return one.name, kind, one.names[-1], "\n".join(filter(None, [paper, one.cost])), ", ".join(one.needs)
