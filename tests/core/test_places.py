"""Where tables lie, by name, and by the path that they had in earlier versions."""

from pathlib import Path

from fedleak.core.places import moved_table, table_files
from tests.places import CONFIGS

PAPERS = {"raifle", "decaf", "deanon", "pac"}


def test_each_table_has_a_name_of_its_own() -> None:
    files = [*(CONFIGS / "paper").rglob("*.yaml"), *(CONFIGS / "table").rglob("*.yaml")]
    assert len(files) == len({path.stem for path in files}) == len(table_files()) > 100


def test_a_table_of_a_paper_lies_in_the_paper_s_folder() -> None:
    assert {path.name for path in (CONFIGS / "paper").iterdir()} == PAPERS
    for name, path in table_files().items():
        paper = name.partition("_")[0]
        assert path.parent.name == (paper if paper in PAPERS else "table"), name


def test_an_old_path_leads_to_the_table() -> None:
    for old in ("configs/paper/raifle_table5.yaml", "/srv/fedleak/configs/paper/raifle_table5.yaml"):
        assert moved_table(Path(old)) == table_files()["raifle_table5"]
    assert moved_table(Path("configs/paper/words_blog.yaml")) == table_files()["words_blog"]


def test_no_other_path_is_taken_for_an_old_one(tmp_path: Path) -> None:
    own = tmp_path / "configs" / "paper" / "raifle_table5.yaml"
    own.parent.mkdir(parents=True)
    assert moved_table(own) == table_files()["raifle_table5"]
    own.write_text("metrics: [auc]\n", encoding="utf-8")
    assert moved_table(own) is None  # a file that is there is meant
    assert moved_table(Path("tables/raifle_table5.yaml")) is None
    assert moved_table(Path("configs/paper/raifle_table99.yaml")) is None
