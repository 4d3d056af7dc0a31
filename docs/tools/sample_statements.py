"""Sample statements of the documentation: two invented systems, recorded, audited and stated by the project's commands.

python -m docs.tools.sample_statements FOLDER     # writes FOLDER/plain-updates.html and FOLDER/noise-and-sums.html
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "docs" / "samples"
SAMPLES: Mapping[str, str] = {
    "plain-updates": "Plain updates",
    "noise-and-sums": "Noise and secure sums",
}
"""Samples by name, with a title."""
_START = """# Two sample statements

Both are about an invented app that reads meters, before and after its measures. The recordings are made when this
documentation is built: 40 simulated clients with scikit-learn's handwritten digits. The controller's declarations are
invented too; [how to read a statement](../../audit/data-protection-questions.md) explains every line."""
_LIMIT = 600
"""Seconds after which a command is stopped."""


def commands(name: str, folder: Path) -> list[list[str]]:
    """Arguments of the two commands that make a sample in a folder: the training and the audit."""
    config = ["-c", "configs/train/decaf_digits.yaml", "-c", f"docs/samples/{name}.train.yaml"]
    system = ["--statement", f"docs/samples/{name}.system.yaml"]
    return [
        ["train.py", "fit", *config, "--trainer.default_root_dir", str(folder)],
        ["attack.py", "audit", str(folder / "deltas"), "--out", str(folder / "audit"), *system],
    ]


def write(folder: Path) -> None:
    """Makes the samples and writes their pages.

    Raises:
        subprocess.CalledProcessError: a command ended with another status than 0.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in SAMPLES:
        with tempfile.TemporaryDirectory() as work:
            for arguments in commands(name, Path(work)):
                command = [sys.executable, *arguments]
                subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=_LIMIT)
            shutil.copy(Path(work, "audit", "statement.html"), folder / f"{name}.html")


def page() -> str:
    """The page that leads to the samples; they lie in ``samples/`` of the site."""
    parts = [_START]
    for name, title in SAMPLES.items():
        url = f"../../../samples/{name}.html"
        link = f'<a href="{url}">The statement as a page of its own</a>'
        frame = f'<iframe src="{url}" title="{title}" style="width: 100%; height: 1200px; border: 1px solid"></iframe>'
        command_lines = [f"python {' '.join(arguments)}" for arguments in commands(name, Path("runs", name))]
        listing = "\n".join(command_lines)
        parts.append(
            f"## {title}\n\n<p>{link}, for reading and printing.</p>\n\n{frame}\n\nMade by\n\n```\n{listing}\n```"
        )
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the sample statements of the documentation.")
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder)
