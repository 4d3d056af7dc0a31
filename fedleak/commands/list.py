"""``fedleak list``: a line for each question, or the attacks: all, of one question, or those that fit a recording."""

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedleak.commands.shared import shared_options
from fedleak.commands.shared.command import Command, Option, Options, flag
from fedleak.core.bibliography import publications
from fedleak.core.errors import require
from fedleak.reports.text_table import text_table, wrapped_table
from fedleak_recorder.nearest import did_you_mean

if TYPE_CHECKING:
    from fedleak.evaluation.attack_descriptions import AttackDescription
    from fedleak.evaluation.reasons import Reason

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


@dataclass(frozen=True)
class ListOptions(Options):
    """Values of the options of ``fedleak list``."""

    all: bool = False
    question: str | None = None
    fits: str | None = None
    learner: str | None = None
    learner_arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        of_recording = self.learner is None or self.fits is not None
        require(of_recording, "--fits DIR before --learner", f"--learner {self.learner}", "Name the recording.")


def list_attacks(options: ListOptions) -> int:
    """Prints a line for each question, or attacks by question.

    Of an attack, it says whether it is exact or statistical, its threat model, its paper, its cost and what it needs.
    The threat model is a letter; with the names of the question in NIST AI 100-2, MITRE ATLAS and OWASP AISVS, it is
    explained in docs/theory/taxonomies.md.

    Raises:
        InputError: there is no such question or recording.
    """
    from fedleak.evaluation.attack_descriptions import described

    attacks = _of_question(described(), options.question)
    width = min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)
    if options.fits is not None:
        misfits = _misfits(options, [_full_name(attack) for attack in attacks])
        _print_fitting(attacks, misfits, options.fits, width)
    elif options.all or options.question is not None:
        print("\n".join(_by_family(attacks, width)))
    else:
        print("\n".join(_questions(attacks)))
    return 0


def _print_fitting(
    attacks: Sequence["AttackDescription"], misfits: Mapping[str, "Reason"], folder: str, width: int
) -> None:
    """Prints the attacks that a recording has the data for, and the others by the reason."""
    fitting = [attack for attack in attacks if _full_name(attack) not in misfits]
    print("\n".join(_by_family(fitting, width)))
    print(f"\n{len(fitting)} of {len(attacks)} attacks fit {Path(folder)}.")
    # Many attacks lack the same, so that there is a paragraph for each reason.
    by_reason: dict[str, list[str]] = {}
    for name, reason in misfits.items():
        by_reason.setdefault(reason.sentence, []).append(name)
    for sentence, names in by_reason.items():
        print(textwrap.fill(f"{', '.join(names)}: {sentence}.", width, subsequent_indent="  ", break_on_hyphens=False))


def _misfits(options: ListOptions, names: Sequence[str]) -> dict[str, "Reason"]:
    """Reason by ``family/name`` of the attacks that do not fit a recording."""
    assert options.fits is not None
    if options.learner is None and not options.learner_arguments:
        from fedleak.evaluation.kept_fits import kept_misfits

        return kept_misfits(Path(options.fits), names)
    # A learner may be the user's own code, of which the cache knows nothing.
    from fedleak.commands.shared.open_recording import open_recording
    from fedleak.evaluation.fitting import misfits
    from fedleak.evaluation.registry import REGISTRY

    recording = open_recording(options.fits, options.learner, options.learner_arguments)
    return misfits(recording, [REGISTRY[name]() for name in names])


def _full_name(attack: "AttackDescription") -> str:
    return f"{attack.family}/{attack.name}"


def _of_question(attacks: Sequence["AttackDescription"], question: str | None) -> list["AttackDescription"]:
    """Attacks of a family, or of all families with a word in their names."""
    if question is None:
        return [*attacks]
    families = list(dict.fromkeys(attack.family for attack in attacks))
    names = list(families)
    for family in families:
        names += family.split("-")
    chosen = [attack for attack in attacks if question in (attack.family, *attack.family.split("-"))]
    way_out = did_you_mean(question, names, f"Questions: {', '.join(families)}.")
    require(chosen, "--question: a family of attacks, or a word of its name", repr(question), way_out)
    return chosen


def _questions(attacks: Sequence["AttackDescription"]) -> list[str]:
    """A line for each question: how many attacks and baselines there are, and what all of them need."""
    families: dict[str, list[AttackDescription]] = {}
    for attack in attacks:
        families.setdefault(attack.family, []).append(attack)
    rows = []
    for family, of_family in families.items():
        baselines = sum(attack.baseline for attack in of_family)
        # The first line of a family's documentation: "Attacks on ...: the question? A remark."
        question = of_family[0].question.rpartition(": ")[2]
        if "?" in question:
            question = question[: question.index("?") + 1]
        count = str(len(of_family) - baselines)
        rows.append((family, count, str(baselines), _common_needs(of_family), question))
    header = ("question", "attacks", "baselines", "every attack needs", "asks")
    table = text_table(header, rows, numeric=[False, True, True, False, False])
    return [*table, "", "fedleak list --question NAME prints its attacks, --all those of every question."]


def _common_needs(attacks: Sequence["AttackDescription"]) -> str:
    """What every attack of a question needs, without its baselines, in words."""
    measuring = [attack for attack in attacks if not attack.baseline] or attacks
    common = _needs_in_words(measuring[0])
    for attack in measuring[1:]:
        needs = _needs_in_words(attack)
        common = [word for word in common if word in needs]
    return ", ".join(dict.fromkeys(common)) or "nothing"


def _needs_in_words(attack: "AttackDescription") -> list[str]:
    """Needs by what they begin with: of some entries of the updates as of the updates."""
    return [_NEEDED.get(need.partition(":")[0], need) for need in attack.needs]


def _by_family(attacks: Sequence["AttackDescription"], width: int) -> list[str]:
    """Lines of a section for each family, with a table for each thing that its attacks infer."""
    families: dict[str, dict[str, list[AttackDescription]]] = {}
    for attack in attacks:
        by_inferred = families.setdefault(f"{attack.family}: {attack.question}", {})
        by_inferred.setdefault(attack.inferred, []).append(attack)
    text: list[str] = []
    for heading, by_inferred in families.items():
        text += ["", *textwrap.wrap(heading, width)]
        for inferred, of_question in by_inferred.items():
            text += ["", *textwrap.wrap(f"Infers {inferred}{_taxonomies(of_question)}", width)]
            text += wrapped_table(_COLUMNS, list(map(_row, of_question)), width)
    return [*text[1:], *_papers(attacks, width)]


def _papers(attacks: Sequence["AttackDescription"], width: int) -> list[str]:
    """Lines of a section with the publications of the attacks, by the keys that stand in the tables."""
    papers = publications(reference for attack in attacks for reference in attack.references)
    if not papers:
        return []
    return ["", "Papers", "", *wrapped_table(("key", "publication"), list(papers.items()), width)]


def _taxonomies(attacks: Sequence["AttackDescription"]) -> str:
    """Names of a question in public taxonomies, in parentheses; with those of single attacks that differ."""
    # The last of an attack's names is the letter of its threat model, which has a column.
    attacks_by_names: dict[str, list[str]] = {}
    for attack in attacks:
        attacks_by_names.setdefault(" ".join(attack.names[:-1]), []).append(attack.name)
    if not any(attacks_by_names):
        return ""
    most_common, *rarer = sorted(attacks_by_names, key=lambda names: -len(attacks_by_names[names]))
    words = [most_common]
    for names in rarer:
        words.append(f"{', '.join(attacks_by_names[names])}: {names}")
    return f" ({'; '.join(words)})"


def _row(attack: "AttackDescription") -> tuple[str, ...]:
    """Cells of `_COLUMNS`."""
    if attack.baseline:
        kind = "baseline"
    elif attack.exact:
        kind = "exact"
    else:
        kind = "statistical"
    paper = "; ".join(attack.references)
    if not paper and not attack.baseline:
        paper = "ours"
    only_with = "in audits with --published" if attack.for_comparison else ""
    paper_and_cost = "\n".join(filter(None, [paper, attack.cost, only_with]))
    return attack.name, kind, attack.names[-1], paper_and_cost, ", ".join(attack.needs)


COMMAND = Command(
    heading="start here",
    place=13,
    summary="prints the questions that attacks answer, or the attacks",
    groups={
        "what to print": [
            flag("--all", "every attack: exact or statistical, its threat model, its paper, its cost and its needs"),
            Option(
                "--question",
                "every attack of one question, or of those with this word in their names",
                "a line for each question",
                parsing={"metavar": "NAME"},
            ),
            Option(
                "--fits",
                "the attacks that this recording has the data for, and the reasons for which the others do not fit",
                "none",
                parsing={"metavar": "DIR"},
            ),
        ],
        shared_options.ADVANCED: [shared_options.LEARNER],
    },
    options=ListOptions,
    run=list_attacks,
    loads="",  # without --fits, it is read from a file
)
