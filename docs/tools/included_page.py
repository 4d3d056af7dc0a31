"""Page of everything that is included, docs/reference/included.md, from what attacks, data sets and others say.

Nothing is named here, so that an addition is on the page as soon as its file is there and the page is written again:

    python -m docs.tools.included_page      # as `make included` does
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from lightning.pytorch.callbacks import Callback

from docs.tools.attack_pages import table
from fedleak import callbacks, datamodules, defenses, evaluation, modules, server
from fedleak.core.attack import Attack
from fedleak.core.class_paths import classes_in
from fedleak.core.exports import public_names
from fedleak.core.io.files import write_whole
from fedleak.defenses.base import Defense
from fedleak.defenses.manipulation_checks import Check
from fedleak.defenses.model_checks.base import ModelCheck
from fedleak.evaluation.registry import REGISTRY
from fedleak.reports.exporters import NAMES, exporter_named
from fedleak.server.deviation import Deviation
from fedleak.tables.after import STEPS
from fedleak.training.data import FederatedDataModule
from fedleak.training.lightning.built_from_data import BuiltFromData

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "included.md"
_START = """# What is included

For whoever looks for an attack, a data set, a learner, a defence or a check by its name. After this page you know what
there is, and what each needs.

This page is made from the code by `make included`: each class describes itself. `fedleak list` prints the attacks with
their papers and threat models, and `fedleak list --fits DIR` those that a recording has the data for. An audit runs
these, except for slow ones (`--slow`) and for published ones that are nowhere ahead of every other in
[our results](../results.md) (`--published`).

[Data sets](data.md) says where the data sets come from, and [models](models.md) what the learners keep private.
[Clusters](clusters.md) and [sweeps](sweeps.md) are about training in several processes."""
Row = tuple[str, ...]


def page() -> str:
    """Text of the page."""
    sections = [attacks(), data_sets(), learners(), defences(), checks(), deviations(), steps(), exporters(), hooks()]
    return "\n\n".join([_START, *sections]) + "\n"


def attacks() -> str:
    """A table of attacks for each question."""
    parts = [f"## Attacks\n\n{len(REGISTRY)} attacks and baselines, by question."]
    families: dict[str, list[type[Attack]]] = {}
    for kind in REGISTRY.values():
        families.setdefault(kind.family, []).append(kind)
    for family, kinds in families.items():
        inferred = dict.fromkeys(kind.estimates.inferred for kind in kinds)
        parts.append(f"### {family.capitalize()}\n\nThe server infers {'; or '.join(inferred)}.")
        rows = [(f"`{kind.name}`", _attack(kind), _role(kind), kind.cost, _needs(kind)) for kind in kinds]
        parts.append(table(("Attack", "What it is", "Kind", "Cost", "Needs"), rows))
    return "\n\n".join(parts)


def data_sets() -> str:
    """Data sets that a training names, with the folders below the data root."""
    kinds = [kind for kind in classes_in(datamodules, FederatedDataModule) if vars(kind).get("folders")]
    return _section(
        "Data sets",
        "`--data.root` is the folder that holds these folders; *generated* data need none.",
        ("Class", "What it is", "Folders"),
        ((f"`{kind.__name__}`", definition(kind), ", ".join(f"`{name}`" for name in kind.folders)) for kind in kinds),
    )


def learners() -> str:
    """What is trained: every class that users name, and none that is only a base of others."""
    kinds = classes_in(modules, BuiltFromData)
    # A class that others extend is shown if users name it too.
    exported = {getattr(modules, name) for name in public_names(modules)}
    bases: set[type] = set()
    for kind in kinds:
        bases.update(kind.__bases__)
    shown = [kind for kind in kinds if kind in exported or kind not in bases]
    return _section("Learners", "What clients train, `--model NAME`.", ("Class", "What it is"), _by_class(shown))


def defences() -> str:
    """What clients do before they send."""
    lead = "What clients do to the training or to an update, `model.defenses` of a training."
    kinds = [*classes_in(defenses, Defense), *classes_in(evaluation, Defense)]  # a client may attack its own update
    return _section("Defences", lead, ("Class", "What it is"), _by_class(kinds))


def checks() -> str:
    """Both kinds of checks of what a client receives."""
    header = ("Check", "What it measures")
    features = _section(
        "Checks of received features",
        "What clients can notice of the features that a server shows them: the step `manipulation-checks`.",
        header,
        ((f"`{kind.name}`", definition(kind)) for kind in classes_in(defenses, Check)),
    )
    models = _section(
        "Checks of a received model",
        "What clients can notice of the model that a server sends them.",
        header,
        ((f"`{kind.name}`", definition(kind)) for kind in classes_in(defenses, ModelCheck)),
    )
    return f"{features}\n\n{models}"


def deviations() -> str:
    """What a server may do besides averaging."""
    return _section(
        "What a server may do",
        "Besides averaging: `model.manipulation`, `model.probing` and `data.repeated_selection` of a training.",
        ("Class", "The server", "It deviates in what it"),
        ((f"`{kind.__name__}`", kind.does, kind.part) for kind in classes_in(server, Deviation)),
    )


def steps() -> str:
    """Comparisons next to the scores of attacks."""
    lead = "Comparisons next to the scores of attacks, `after` of a table."
    rows = ((f"`{name}`", definition(kind)) for name, kind in sorted(STEPS.items()))
    return _section("Steps", lead, ("Step", "What it is"), rows)


def exporters() -> str:
    """Formats and services of others."""
    rows = ((f"`{name}`", definition(exporter_named(name))) for name in NAMES)
    return _section(
        "Exporters", "Results of a run elsewhere: `fedleak export DIR --to NAME`.", ("Name", "What it is"), rows
    )


def hooks() -> str:
    """Callbacks of a training."""
    lead = "What runs during a training: `trainer.callbacks`."
    kinds = classes_in(callbacks, Callback, without="steps")
    exported = [getattr(callbacks, name) for name in public_names(callbacks)]
    # Those that every training has are the kernel's, and the room of additions exports them.
    of_every_training = [kind for kind in exported if kind not in kinds]
    shown = sorted([*kinds, *of_every_training], key=lambda kind: kind.__name__)
    return _section("Callbacks", lead, ("Class", "What it does"), _by_class(shown))


def definition(kind: type) -> str:
    """The first paragraph of a docstring, with names in single backticks as Markdown has them."""
    first = (kind.__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(first.split()).replace("``", "`")


def _attack(kind: type[Attack]) -> str:
    """The definition of an attack; of a variant, the values in which it differs from the attack that has one."""
    if kind.variant_of is None or kind.variant_key is None:
        return definition(kind)
    options = []
    for name, value in kind.variants[kind.variant_key].items():
        if name not in ("name", "cost") and isinstance(value, bool | int | float | str):
            options.append(f"`{name} = {value!r}`")
    base = f"`{kind.variant_of.name}`"
    if not options:
        return f"variant of {base}"
    return f"{base} with {', '.join(options)}"


def _needs(kind: type[Attack]) -> str:
    return ", ".join(f"`{need}`" for need in kind.threat_model.described_needs)


def _role(kind: type[Attack]) -> str:
    if kind.baseline:
        return "baseline"
    if kind.for_comparison:
        return "published, with `--published`"
    if kind.references:
        return "published"
    return "ours"


def _by_class(kinds: Iterable[type]) -> list[Row]:
    return [(f"`{kind.__name__}`", definition(kind)) for kind in kinds]


def _section(title: str, lead: str, header: Sequence[str], rows: Iterable[Row]) -> str:
    return f"## {title}\n\n{lead}\n\n{table(header, rows)}"


def main() -> None:
    """Writes the page."""
    write_whole(PAGE, page().encode())
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
