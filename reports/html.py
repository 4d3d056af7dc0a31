"""The report: one self-contained page that a stranger can read."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from attacks.base import ThreatModel
from datamodules.recording_format import write_whole
from reports.anonymity import anonymity_headline
from reports.curves import vector_headline
from reports.judging import meanings
from reports.pivot import pivot
from reports.results import Result, Run
from reports.settings import describe
from reports.tables import DIFFERENCES, HEADER, attacks_then_baselines, difference_rows, table_rows

_TEMPLATES = Path(__file__).parent / "templates"
_LEAK = 0.6
"""AUC from which the headline speaks of a leak; the interval must lie above guessing as well."""
_TOLD = {"pir-fingerprint": "whether a certain document was among those that the user retrieved"}
"""What an attack tells of a user, where it is not what the user interacted with."""
_INTERACTIONS = "which of the items it was shown the user interacted with"
_EQUAL_SHARES = "uniform-present"
GENERATED = (
    "These data are generated: the numbers prove that the machinery works, and nothing about real people's data."
)


def write_report(
    directory: Path,
    run: Run,
    *,
    threat_models: Mapping[str, ThreatModel],
    figures: Sequence[tuple[str, str]] = (),
    missing: Sequence[str] = (),
    causes: Sequence[str] = (),
) -> Path:
    """Writes report.html.

    Args:
        directory: where to.
        run: the results.
        threat_models: by attack.
        figures: captions and SVG texts, made by `reports.figures`.
        missing: sentences on what could not run.
        causes: sentences on why attacks told little.
    """
    environment = Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined)
    attacks, baselines = attacks_then_baselines(run.results)
    generated = [GENERATED] if any(str(r.setting.get("data")).startswith("synthetic") for r in run.results) else []
    page = environment.get_template("report.html.j2").render(
        run=run,
        headline=headline(run.results),
        notes=[*generated, *(str(verdict.get("message", "")) for verdict in run.gate)],
        missing=missing,
        causes=causes,
        header=HEADER,
        wide=pivot(run.results),
        scales=meanings({r.metric for r in run.results}),
        differences=difference_rows(run.differences),
        difference_header=DIFFERENCES,
        attacks=table_rows(attacks),
        baselines=table_rows(baselines),
        figures=figures,
        threat_models=threat_models,
    )
    path = directory / "report.html"
    write_whole(path, page.encode())
    return path


def headline(results: Sequence[Result]) -> str:
    """What leaked, in a sentence."""
    if any(r.metric == "l1" for r in results):
        return _composition_headline([r for r in results if r.metric == "l1"])
    named = anonymity_headline(results)
    if named is not None:
        return named
    attacks, baselines = attacks_then_baselines([r for r in results if r.metric == "auc"])
    if not attacks:
        return vector_headline(results) or "No attack could be scored on this recording."
    best = max(attacks, key=lambda r: r.mean)
    certainty = f"AUC {best.mean:.3f}, 95% interval {best.ci95[0]:.3f} to {best.ci95[1]:.3f}, n = {best.n} users"
    prior = next((b for b in baselines if b.attack == "popularity" and b.setting == best.setting), None)
    beside = "" if prior is None else f"; knowing only what others like gives {prior.mean:.3f}"
    where = describe(best.setting)
    if best.mean < _LEAK or best.ci95[0] <= 0.5:
        what = _TOLD.get(best.attack, "what users interacted with")
        return f"On {where}, no attack told much better than by guessing {what} ({certainty}{beside})."
    return (
        f"On {where}, the server can tell from a user's update {_TOLD.get(best.attack, _INTERACTIONS)}"
        f" ({best.attack}: {certainty}; guessing gives 0.5{beside})."
    )


def _composition_headline(results: Sequence[Result]) -> str:
    """The attack with the smallest distance, beside equal shares of the present classes in its own setting."""
    attacks, _ = attacks_then_baselines([r for r in results if r.attack != _EQUAL_SHARES])
    if not attacks:
        return "No attack could be scored on this recording."
    best = min(attacks, key=lambda r: r.mean)
    equal = next((r for r in results if r.attack == _EQUAL_SHARES and r.setting == best.setting), None)
    beside = "" if equal is None else f"; calling all classes that it has equal, {equal.mean:.3f}"
    told = "can tell" if equal is None or best.ci95[1] < equal.mean else "can hardly tell"
    return (
        f"On {describe(best.setting)}, the server {told} from a user's update what share of its examples each class "
        f"has ({best.attack}: mean L1 distance {best.mean:.3f}, 95% interval {best.ci95[0]:.3f} to {best.ci95[1]:.3f}, "
        f"n = {best.n} users{beside})."
    )
