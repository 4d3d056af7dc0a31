"""Configuration of Sphinx. The source is the whole checkout, so that links work here as they do in a code browser.

Pages of attacks, of a server's deviations and of the API, and two sample statements, are written into docs/generated/
before Sphinx reads: `make docs`.
"""

import importlib
import shutil
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "recorder"), str(ROOT / "guard")]

from docs.tools import attack_pages, sample_statements, server_page, tutorial_thumbnails  # noqa: E402
from fedleak.core.bibliography import with_whole_references  # noqa: E402

project = "fedleak"
author = "the authors of fedleak"
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
root_doc = "README"
include_patterns = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/**"]
exclude_patterns = [
    *(f"{folder.name}/**" for folder in ROOT.iterdir() if folder.is_dir() and folder.name != "docs"),
    *("docs/results/**", "docs/families/**", "docs/tutorials/**", "docs/_templates/**", "docs/samples/**"),
]
templates_path = ["_templates"]

html_theme = "pydata_sphinx_theme"
html_title = "fedleak"
html_additional_pages = {"index": "index.html"}  # the first page is README.html
html_theme_options = {"show_prev_next": False, "secondary_sidebar_items": ["page-toc"], "navigation_with_keys": False}
html_show_sourcelink = False
html_extra_path = ["generated/extra"]  # the sample statements, as pages of their own
html_math_renderer = "mathml"  # drawn by the browser, without a script of another site

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
suppress_warnings = ["config.cache", "myst.header"]

default_role = "literal"  # a name in single backticks
autodoc_typehints = "none"
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Threat model", ("Variants", "params_style")]

sphinx_gallery_conf = {
    "examples_dirs": ["docs/tutorials"],
    "gallery_dirs": ["docs/generated/tutorials"],
    "filename_pattern": r"\.py$",
    "capture_repr": ("_repr_html_", "__repr__"),
    "image_scrapers": ("matplotlib", tutorial_thumbnails.audit_figure),
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "min_reported_time": 1,
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,
}

ROOMS = (
    *("fedleak", "fedleak.evaluation", "fedleak.attacks", "fedleak.client", "fedleak_recorder", "fedleak_guard"),
    *("fedleak.recordings", "fedleak.core", "fedleak.defenses", "fedleak.server", "fedleak.training"),
    *("fedleak.modules", "fedleak.datamodules", "fedleak.callbacks", "fedleak.tables", "fedleak.reports"),
)
HOME = """
```{toctree}
:hidden:

docs/start/audit-your-system
docs/generated/tutorials/index
docs/generated/attacks/index
docs/start/reproduce-a-paper
docs/index
```
"""


def api_pages() -> dict[str, str]:
    """A page for each package with everything that it exports; attacks have pages of their own."""
    pages = {}
    for room in ROOMS:
        package = importlib.import_module(room)
        text = f"# {room}\n\n{with_whole_references(package.__doc__ or '').strip()}\n"
        for name in package.__all__:
            shown = getattr(package, name)
            # What a package exports from another one is on the other's page; `fedleak` exports from all.
            own = room == "fedleak" or getattr(shown, "__module__", "").startswith(f"{room}.")
            if attack_pages.is_listed(shown) or not own or not callable(shown):
                continue
            kind, members = ("class", "\n   :members:") if isinstance(shown, type) else ("function", "")
            # References lead to the page of the room, where the same name stands again.
            index = "\n   :no-index:" if room == "fedleak" else ""
            text += f"\n```{{eval-rst}}\n.. auto{kind}:: {room}.{name}{members}{index}\n```\n"
        pages[f"{room}.md"] = text
    listed = "\n".join(ROOMS)
    return {**pages, "index.md": f"# API\n\nWhat each package exports.\n\n```{{toctree}}\n{listed}\n```\n"}


def generate(*_: Any) -> None:
    """Writes the pages that the code describes."""
    generated = {"attacks": attack_pages.pages(), "server": server_page.pages(), "api": api_pages()}
    generated["samples"] = {"index.md": sample_statements.page()}
    (ROOT / "docs" / "generated" / "extra").mkdir(parents=True, exist_ok=True)
    for folder, pages in generated.items():
        place = ROOT / "docs" / "generated" / folder
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for name, text in pages.items():
            (place / name).write_text(text, encoding="utf-8")


def make_samples(app: Sphinx) -> None:
    """Makes the sample statements, unless links are checked only."""
    if app.builder.name == "html":
        sample_statements.write(ROOT / "docs" / "generated" / "extra" / "samples")


def add_contents(_: Sphinx, name: str, source: list[str]) -> None:
    """Adds the table of contents to the first page, which is README.md as it stands."""
    if name == root_doc:
        source[0] += HOME


def add_publications(_: Sphinx, _what: str, _name: str, _thing: Any, _options: Any, lines: list[str]) -> None:
    """Puts whole publications in the place of their keys."""
    lines[:] = [with_whole_references(line) for line in lines]


def keep_colons(_: Sphinx, what: str, _name: str, _thing: Any, _options: Any, lines: list[str]) -> None:
    """Keeps napoleon from taking the text before a colon for the type of a property."""
    if what in ("property", "attribute"):
        lines.insert(0, "")


def add_math(translator: Any, node: Any) -> None:
    """Writes a formula as MathML."""
    block = isinstance(node, nodes.math_block)
    formula = tex2mathml(node.astext().strip(), as_block=block)
    translator.body.append(f"<div>{formula}</div>" if block else formula)
    raise nodes.SkipNode


def hide_bars() -> None:
    """Hides progress bars, which the output of a tutorial would hold at every step."""
    start = tqdm.__init__

    def hidden(bar: Any, *given: Any, **options: Any) -> None:
        start(bar, *given, **{**options, "disable": True})

    tqdm.__init__ = hidden  # type: ignore[method-assign, assignment]


def setup(app: Sphinx) -> None:
    """Connects the steps of this build."""
    hide_bars()
    app.connect("config-inited", generate)
    app.connect("builder-inited", make_samples)
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", keep_colons, priority=100)  # napoleon has 500
    app.connect("autodoc-process-docstring", add_publications, priority=101)
    app.add_html_math_renderer("mathml", (add_math, None), (add_math, None))
