"""The page in a real browser: sorting, filtering, one client, links into parts, printing, and without its script."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fedleak.evaluation.run import Run
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, concat, score_table
from fedleak.reports.figures.report_figures import report_figures
from fedleak.reports.html import write_report
from fedleak.reports.questions import questions
from fedleak.reports.sections import sections
from tests.reports.toys import LINES, cell, table

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.integration, pytest.mark.skipif(BROWSER is None, reason="no Chromium here")]
SCRIPT = re.compile(r"<script>.*?</script>", re.DOTALL)
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--virtual-time-budget=2000")


def page(folder: Path, *, many: int = 0) -> Path:
    """A page of two questions; `many` adds rows to the table of the second, which is closed."""
    lines = {**LINES, "words": AttackInfo(role="ours", family="words", question="another", tells="what it reads")}
    rows = [cell("codebook", 0.9), cell("raifle", 0.95), cell("chance", 0.5), cell("popularity", 0.6)]
    rows += [cell("words", 0.4, learner=f"l{number}") for number in range(many + 1)]
    results = table(*rows, lines=lines)
    common = {"setting": {"data": "d"}, "seed": 0, "victims": [1, 2, 3]}
    values = {"codebook": [0.8, 0.9, 1.0], "raifle": [0.9, 0.95, 1.0], "chance": [0.4, 0.5, 0.6]}
    scores = concat([score_table(name, {"auc": own}, **common) for name, own in values.items()])  # type: ignore[arg-type]
    figures = report_figures(Evaluation(scores=scores, lines=lines), results, ["auc"], persons=True)
    run = Run("test", "", 0, None, {}, {"name": "d", "sha256": ""}, "", 1.0, results)
    asked = questions(results, scores=scores)
    return write_report(folder, run, questions=asked, sections=sections(results), figures=figures)


def browser(path: Path, *arguments: str) -> str:
    assert BROWSER is not None
    profile = f"--user-data-dir={path.parent / 'profile'}"
    done = subprocess.run(
        [BROWSER, *FLAGS, profile, *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def after(path: Path, actions: str, anchor: str = "") -> str:
    """What an expression gives on a copy of the page in a browser, after some actions."""
    copy = path.with_name("copy.html")
    said = f"<script>document.title = JSON.stringify((() => {{ {actions} }})());</script></body>"
    text = path.read_text(encoding="utf-8").replace("</body>", said)
    copy.write_text(re.sub(POLICY, "", text), encoding="utf-8")  # the page's policy would not run the actions
    dumped = browser(copy, "--dump-dom", f"{copy.as_uri()}{anchor}")
    return dumped.partition("<title>")[2].partition("</title>")[0]


ATTACKS = (
    "[...document.querySelectorAll('#auc tbody tr:not(.group) td:first-child')].map(one => one.textContent).join()"
)


def test_a_click_on_a_head_sorts_attacks_and_baselines_by_themselves(tmp_path: Path) -> None:
    made, click = page(tmp_path), "document.querySelectorAll('#auc th')[1].click();"
    assert after(made, f"return {ATTACKS}") == '"raifle,codebook,popularity,chance"'
    assert after(made, f"{click} return {ATTACKS}") == '"codebook,raifle,chance,popularity"'
    assert after(made, f"{click} {click} return {ATTACKS}") == '"raifle,codebook,popularity,chance"'


def test_the_filter_hides_other_attacks(tmp_path: Path) -> None:
    typed = "const box = document.getElementById('filter'); box.value = 'RAI'; box.dispatchEvent(new Event('input'));"
    shown = "[...document.querySelectorAll('#auc tr[data-attack]')].filter(row => row.offsetHeight).map(row => "
    shown += "row.dataset.attack).join()"
    assert after(page(tmp_path), f"{typed} return {shown}") == '"raifle"'


def test_a_chosen_client_stands_out_in_every_figure(tmp_path: Path) -> None:
    pick = "const list = document.getElementById('client'); list.value = '2'; list.dispatchEvent(new Event('change'));"
    count = "const seen = mark => getComputedStyle(mark).opacity;"
    count += "return [...document.querySelectorAll('svg .client')].map(mark => mark.dataset.client + seen(mark)).join()"
    assert after(page(tmp_path), f"{pick} {count}") == '"' + ",".join(["10.2,21,30.2"] * 3) + '"'
    assert after(page(tmp_path), count) == '"' + ",".join(["11,21,31"] * 3) + '"'


def test_a_link_from_the_list_opens_its_part(tmp_path: Path) -> None:
    made, opened = page(tmp_path), "return [...document.querySelectorAll('details.part')].map(part => part.open)"
    assert after(made, opened) == "[true,false]"
    assert after(made, opened, anchor="#part-2") == "[true,true]"


def test_without_its_script_the_page_shows_the_same_numbers(tmp_path: Path) -> None:
    made = page(tmp_path)
    plain = made.with_name("plain.html")
    plain.write_text(SCRIPT.sub("", made.read_text(encoding="utf-8")), encoding="utf-8")
    with_script, without = (browser(one, "--dump-dom", one.as_uri()) for one in (made, plain))
    cells = re.compile(r"<td[^>]*>([^<]*)</td>")
    assert cells.findall(without) == cells.findall(with_script)
    assert '<p class="controls" hidden' in without
    assert '<p class="controls" hidden' not in with_script


def test_print_shows_closed_parts_without_the_script_too(tmp_path: Path) -> None:
    pages = []
    for many in (0, 35):
        folder = tmp_path / str(many)
        folder.mkdir()
        made = page(folder, many=many)
        made.write_text(SCRIPT.sub("", made.read_text(encoding="utf-8")), encoding="utf-8")
        browser(made, f"--print-to-pdf={folder / 'page.pdf'}", made.as_uri())
        pages.append(len(re.findall(rb"/Type /Page\b", (folder / "page.pdf").read_bytes())))
    assert 0 < pages[0] < pages[1]


def test_the_policy_runs_the_pages_own_script_and_no_other(tmp_path: Path) -> None:
    made = page(tmp_path)
    foreign = "<script>document.title = 'ran'</script><img src=x onerror=\"document.title = 'ran'\"></body>"
    injected = made.with_name("injected.html")
    injected.write_text(made.read_text(encoding="utf-8").replace("</body>", foreign), encoding="utf-8")
    dumped = browser(injected, "--dump-dom", injected.as_uri())
    assert "<title>fedleak: test</title>" in dumped
    assert '<p class="controls">' in dumped  # shown by the page's own script
    unprotected = re.sub(POLICY, "", injected.read_text(encoding="utf-8"))
    injected.write_text(unprotected, encoding="utf-8")
    assert "<title>ran</title>" in browser(injected, "--dump-dom", injected.as_uri())
