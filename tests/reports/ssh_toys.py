"""Keys and allowed signers of ssh-keygen."""

import subprocess
from pathlib import Path


def key(path: Path) -> Path:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "x", "-f", str(path)]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    return path


def allowed(folder: Path, own: Path, options: str = 'namespaces="fedleak"') -> Path:
    file = folder / "allowed"
    file.write_text(f"site@example.org {options} {own.with_suffix('.pub').read_text()}")
    return file
