"""Fuzz targets: results that are passed on, in a bundle, an export, a comparison or a page for a browser."""

import base64
import contextlib
import functools
import io
import json
import random
import re
import tempfile
import xml.dom.minidom
import zipfile
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedleak.core.estimates import ROC_GRID
from fedleak.core.provenance import hashed
from fedleak.evaluation.auditing import AuditResult
from fedleak.evaluation.captioned_figure import CaptionedFigure
from fedleak.evaluation.changes import changes
from fedleak.evaluation.run import read_published
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import concat, score_table, with_setting
from fedleak.evaluation.stored import EVALUATION
from fedleak.evaluation.stored_run import read_run
from fedleak.reports.evidence_bundle import MANIFEST, archive
from fedleak.reports.exporters.model_card import ModelCard
from fedleak.reports.exporters.sarif import Sarif
from fedleak.reports.join import join_runs
from fedleak.reports.junit import NAME, write_gate
from fedleak.reports.write_run import write_run
from tests.fuzz.children import AcceptedError
from tests.fuzz.mutations import at, change_bytes, places_of
from tests.fuzz.recordings import Files, read_tree, write_tree
from tests.fuzz.user_files import Mutant, Parts, nothing_wrong, read_bundle, whole_bundle, wrong_bundle
from tests.fuzz.writings import change_plain
from tests.reports.toys import LINES, run

_RESULTS, _BUNDLE = "results.json", "audit.zip"
_SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><rect width="9" height="9"/></svg>'
HOSTILE = [
    *("<script>alert(1)</script>", "'\"><img src=x onerror=alert(1)>", "</style><svg onload=alert(1)>", "]]><b>"),
    *(
        "javascript:alert(1)",
        "<base href=//example.org>",
        "<iframe src=//example.org>",
        "{{7*7}}",
        "{% raw %}",
        "${7*7}",
    ),
    *("<meta http-equiv=refresh content=0;url=//example.org>", "=1+1", "%s%n", "$\\frac{", "\u202eabc", "--><b>", "\\"),
    *("@import url(//example.org)", "<a href='javascript:alert(1)'>x</a>", "|x|\n|-|", "```\n", "[x](javascript:1)"),
]
"""Texts that a browser, a template, a sheet or a typesetter would follow."""
DRAWINGS = [
    '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
    '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><rect width="9"/></svg>',
    '<svg xmlns="http://www.w3.org/2000/svg"><foreignObject><img src="x" onerror="alert(1)"/></foreignObject></svg>',
    '<svg xmlns="http://www.w3.org/2000/svg"><image href="https://example.org/x.png"/></svg>',
    '<svg xmlns="http://www.w3.org/2000/svg"><a href="javascript:alert(1)"><rect width="9"/></a></svg>',
    '<svg xmlns="http://www.w3.org/2000/svg"><style>@import url(//example.org/x.css);</style></svg>',
    '<svg xmlns="http://www.w3.org/2000/svg"><set attributeName="onclick" to="alert(1)"/></svg>',
    "<svg><rect/></svg></figure><script>alert(1)</script><figure>",
    "<svg><rect/></svg><script>alert(1)</script>",
]
"""Drawings of a figure that do something."""
_NO_DRAWINGS = ["no drawing", "", "<svg", "<svg xmlns='x'>" * 3000]


# ---------------------------------------------------------------------------------------------------------- bundle


def _entries(files: Files) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(files[_BUNDLE])) as file:
        return {name: file.read(name) for name in file.namelist()}


_NAMED: dict[str, Callable[[str], str]] = {
    "capitals": str.upper,
    "this folder": lambda name: f"./{name}",
    "a dot": lambda name: f"{name}.",
    "another composition": lambda name: f"{name}\u0301",
    "absolute": lambda name: f"/{name}",
    "the folder above": lambda name: f"../{name}",
    "a zero": lambda name: f"{name}\0x",
    "a backslash": lambda name: f".\\{name}",
}
_PACKED = ("twice", "deflated", "comment", "link", "extra field", "folder", "64 bits", "date", "order", "flag")


def change_archive(files: Files, draws: random.Random) -> Mutant:
    """The same entries in another archive: other names, entries twice, compressed, links, comments, other flags."""
    entries, how = _entries(files), draws.choice([*_NAMED, *_PACKED])
    place = draws.choice(sorted(entries))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as file:
        for name, data in sorted(entries.items(), reverse=how == "order"):
            odd = name == place
            said = _NAMED[how](name) if how in _NAMED and odd else name
            entry = zipfile.ZipInfo(said, (2026, 1, 1, 0, 0, 0) if how == "date" and odd else (1980, 1, 1, 0, 0, 0))
            entry.create_system, entry.external_attr = 3, (0o120777 if how == "link" and odd else 0o100644) << 16
            entry.extra = b"\x01\x00\x02\x00ab" if how == "extra field" and odd else b""
            entry.compress_type = zipfile.ZIP_DEFLATED if how == "deflated" and odd else zipfile.ZIP_STORED
            with file.open(entry, "w", force_zip64=how == "64 bits" and odd) as writer:
                writer.write(data)
            if how == "twice" and odd:
                file.writestr(entry, data + b" ")
        if how == "folder":
            file.mkdir("x")
        if how == "comment":
            file.comment = b"x" * 10
    whole = content.getvalue()
    if how == "flag":
        whole = _other_byte(whole, draws)
    return {_BUNDLE: whole}, f"{how} {place}"


def _other_byte(content: bytes, draws: random.Random) -> bytes:
    """The archive with another byte in its list of entries or at its end."""
    data = bytearray(content)
    start, most = draws.choice([(content.find(b"PK\x01\x02"), 46), (content.rfind(b"PK\x05\x06"), 22)])
    data[start + draws.randrange(4, most)] = draws.choice([0, 1, 128, 255])
    return bytes(data)


def change_manifest(files: Files, draws: random.Random) -> Mutant:
    """A manifest that says otherwise of the run, with the right hashes of the files."""
    entries = _entries(files)
    manifest = json.loads(entries[MANIFEST])
    held = manifest.pop("files")
    content, said = change_plain(manifest, draws)
    try:
        content = json.dumps({**json.loads(content), "files": held}).encode()
    except TypeError:
        raise ValueError("no mapping") from None
    return {_BUNDLE: archive({**entries, MANIFEST: content})}, said


def wrong_manifest(place: Path, before: Files, after: Files) -> str | None:
    """A manifest that is accepted says of the run what the results say, apart from how it is written."""
    held, said = (json.loads(_entries(files)[MANIFEST]) for files in (before, after))
    odd = [name for name in (*held, *said) if name != "results_sha256" and held.get(name) != said.get(name)]
    return f"another {odd[0]} than the results have" if odd else None


# ------------------------------------------------------------------------------------------------------- exporters


def whole_results() -> Files:
    """The results.json of a small run."""
    return {_RESULTS: run().json()}


def change_results(files: Files, draws: random.Random) -> Mutant:
    """Another value or a hostile text in the results, or another writing."""
    value = json.loads(files[_RESULTS])
    if draws.random() < 0.4:
        said = _with_hostile(value, draws)
        return {**files, _RESULTS: json.dumps(value).encode()}, said
    content, said = change_plain(value, draws)
    return {**files, _RESULTS: content}, said


def _with_hostile(value: Any, draws: random.Random) -> str:
    """Puts a hostile text in place of a text, or of a key."""
    places = [place for place in places_of(value) if place and isinstance(at(value, place), str)]
    place, text = draws.choice(places), draws.choice(HOSTILE)
    parent = at(value, place[:-1])
    if draws.random() < 0.2 and isinstance(parent, dict):
        parent[text] = parent.pop(place[-1])
    else:
        parent[place[-1]] = text
    return f"{text[:20]!r} as {'/'.join(map(str, place))[:80]}"


def read_exports(folder: Path) -> str:
    """SARIF, model card and JUnit XML of the results, each read back by a parser."""
    held = read_published(folder / _RESULTS)
    sarif = json.loads(Sarif().content(held))
    card = ModelCard().content(held)
    head, text = card.split("---\n", 2)[1:]
    yaml.safe_load(head)
    if re.search(r"<script|<img|<svg|<iframe|\]\(javascript:", text):
        raise AcceptedError("HTML in the model card")
    write_gate(folder, held.gate)
    gate = (folder / NAME).read_bytes() if held.gate else b"<none/>"
    xml.dom.minidom.parseString(gate)
    return f"{json.dumps(sarif, sort_keys=True)} {card} {gate!r}"


# ----------------------------------------------------------------------------------------------------------- pages


@functools.cache
def whole_run() -> Files:
    """What is read of the folder of a small run, with a figure."""
    rows = [
        score_table(name, {"auc": [mean, mean + 0.1]}, setting={"data": "d"}, seed=0, victims=[2**62 + 1, 2])
        for name, mean in (("codebook", 0.8), ("chance", 0.45))
    ]
    curve = (2 * ROC_GRID.double().sqrt().numpy(), 2)
    evaluation = Evaluation(scores=concat(rows), lines=dict(LINES), roc={"codebook": curve})
    profile = {"attack": "codebook", "seed": 0, "round": 0, "victim": 1, "class": [0, 1], "low": 0.4}
    shares = pd.DataFrame({**profile, "high": [0.6, None], "true": [0.4, 0.6], "inferred": [0.5, 0.5]})
    evaluation.profiles = with_setting(shares, data="d")
    files = {"svg": _SVG.encode(), "pdf": b"%PDF-1.4"}
    evaluation.figures = [CaptionedFigure("A caption.", "drawn", files)]  # type: ignore[arg-type]
    found = AuditResult(evaluation, ["auc"], {"name": "d", "sha256": "0"}, seconds=1.0)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        write_run(found, directory=Path(folder), experiment="one")
        return {EVALUATION: read_tree(Path(folder))[EVALUATION]}


def change_evaluation(files: Files, draws: random.Random) -> Mutant:
    """Another value, a hostile text or a hostile drawing in evaluation.json, whose checksum fits; or other bytes."""
    body = json.loads(files[EVALUATION])
    version = body.pop("format")
    del body["sha256"]
    how = draws.random()
    if how < 0.1:
        content, said = change_bytes(files[EVALUATION], draws, text=True)
        return {**files, EVALUATION: content}, said
    if how < 0.25:
        drawing = draws.choice([*DRAWINGS, *_NO_DRAWINGS])
        said = f"the drawing {drawing[:60]!r}"
        body["figures"][0]["files"]["svg"] = base64.b64encode(drawing.encode()).decode()
    elif how < 0.5:
        said = _with_hostile(body, draws)
    else:
        content, said = change_plain(body, draws)
        body = json.loads(content)
        if not isinstance(body, dict):
            raise ValueError("no mapping")
    content = json.dumps({"format": version, "sha256": hashed(body), **body}).encode()
    return {**files, EVALUATION: content}, said


def read_comparison(folder: Path) -> str:
    """What changed between the whole run and this one."""
    reference = write_tree(folder.parent / "reference", whole_run())
    return repr(changes(read_run(reference), read_run(folder)).table)


def read_page(folder: Path) -> str:
    """The page of the run, in which a browser would run nothing that the whole run's page has not."""
    out = folder.parent / "out"
    join_runs([folder], out)
    page = (out / "report.html").read_text(encoding="utf-8")
    _raise_active(page, "the page")
    for path in out.rglob("*.svg"):
        _raise_active(path.read_text(encoding="utf-8", errors="replace"), path.name)
    return re.sub(r"\d", "", page)  # without dates and times


def _raise_active(page: str, where: str) -> None:
    odd = active_parts(page) - (_of_whole_page() if where == "the page" else Counter())
    if odd:
        raise AcceptedError(f"{next(iter(odd))} in {where}")


@functools.cache
def _of_whole_page() -> Counter[str]:
    """What the page of the whole run has of its own."""
    with tempfile.TemporaryDirectory() as folder:
        join_runs([write_tree(Path(folder) / "input", whole_run())], Path(folder) / "out")
        return active_parts((Path(folder) / "out/report.html").read_text(encoding="utf-8"))


def active_parts(page: str) -> Counter[str]:
    """What a browser would run or fetch of a page, without what stands in an image."""
    parser = _ActiveParts()
    parser.feed(page)
    parser.close()
    return parser.found


class _ActiveParts(HTMLParser):
    """Collects elements that run or fetch, handlers of events, and addresses."""

    _ELEMENTS = ("script", "iframe", "object", "embed", "base", "link", "meta", "foreignobject", "form", "set")
    _ADDRESSES = ("href", "xlink:href", "src", "srcset", "action", "formaction", "data", "poster", "background")

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self._is_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_style = tag == "style"
        if tag in self._ELEMENTS:
            self.found[f"<{tag}>"] += 1
        for name, value in attrs:
            address = re.sub(r"[\x00-\x20]", "", value or "").lower()
            if name.startswith("on"):
                self.found[f"{name}="] += 1
            elif name in self._ADDRESSES and not address.startswith(("#", "data:image/")):
                self.found[f"{name}={address[:60]}"] += 1
            elif name == "style" and "url(" in address:
                self.found[f"style={address[:60]}"] += 1

    handle_startendtag = handle_starttag

    def handle_data(self, data: str) -> None:
        if self._is_style and re.search(r"@import|url\(\s*['\"]?(?!#|data:)", data):
            self.found["a style that fetches"] += 1

    def handle_endtag(self, tag: str) -> None:
        self._is_style = False


def targets() -> list[Parts]:
    """Bundles, exports, comparisons and pages."""
    return [
        ("bundle, another archive", whole_bundle, change_archive, read_bundle, wrong_bundle),
        ("bundle, another manifest", whole_bundle, change_manifest, read_bundle, wrong_manifest),
        ("results.json, exported", whole_results, change_results, read_exports, nothing_wrong),
        ("evaluation.json, compared", whole_run, change_evaluation, read_comparison, nothing_wrong),
        ("page of a run", whole_run, change_evaluation, read_page, nothing_wrong),
        ("page of a run of an earlier version", whole_results, change_results, read_page, nothing_wrong),
    ]
