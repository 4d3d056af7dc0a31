"""Folders of the package on this machine, in a checkout and in an installation."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
"""The package ``fedleak``."""
CONFIGS = PACKAGE / "configs"
"""Configurations of trainings, tables, networks and the demo."""
TEMPLATES = PACKAGE / "reports" / "templates"
"""Templates of pages."""
_IN_CHECKOUT = (PACKAGE.parent / "train.py").is_file() and (PACKAGE / "attacks").is_symlink()
CHECKOUT = PACKAGE.parent if _IN_CHECKOUT else None
"""The checkout that the package lies in; None in an installation."""
_OLD_PLACE = ("configs", "paper")
"""Folder that held all tables before each paper had one of its own."""


def table_files() -> dict[str, Path]:
    """File of each table by its name: tables of the papers, and those that belong to no paper.

    Examples:
        >>> table_files()["raifle_table5"].parent.name
        'raifle'
    """
    tables = {}
    for folder in (CONFIGS / "paper", CONFIGS / "table"):
        for path in sorted(folder.rglob("*.yaml")):
            tables[path.stem] = path
    return tables


def moved_table(path: Path) -> Path | None:
    """File of a table that an old path names, such as configs/paper/raifle_table5.yaml; None where it names none.

    Examples:
        >>> moved_table(Path("configs/paper/raifle_table5.yaml")).parts[-3:]
        ('paper', 'raifle', 'raifle_table5.yaml')
        >>> moved_table(Path("runs/raifle_table5.yaml"))
    """
    is_old = path.suffix == ".yaml" and path.parent.parts[-2:] == _OLD_PLACE and not path.is_file()
    if not is_old:
        return None
    return table_files().get(path.stem)
