"""Evidence bundle of a run, see `reports.evidence_bundle`."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from datamodules.io.files import sha256_of, write_whole
from protocol.errors import InputError
from protocol.provenance import published
from reports.evidence_bundle import (
    GATE,
    MANIFEST,
    PAGE,
    RESULTS,
    SARIF,
    SIGNATURE,
    STATEMENT,
    BundleError,
    archive,
    check_content,
    manifest_of,
)
from reports.exporters.exporter import Exporter
from reports.exporters.sarif import Sarif
from reports.run import Run
from reports.ssh_signature import signed


@dataclass(frozen=True)
class Bundle(Exporter):
    """Archive of what can be passed on of a run: results, verdicts, statement, hashes, and the command that repeats it.

    It holds numbers over clients and no client's: of the results, tables of attacks' own (``details``), which may name
    records or clients, are left out, and so are scores, class shares, pictures and pages of single clients.

    Attributes:
        file: path of the archive; ``audit.zip`` in the folder of the run by default.
        sign: file of a private key of ssh-keygen that signs the manifest; None for no signature.
    """

    name: ClassVar[str] = "bundle"

    file: str | None = None
    sign: str | None = None

    def export(self, run: Run, directory: Path) -> str:
        path = directory / "audit.zip" if self.file is None else Path(self.file)
        shared = dataclasses.replace(run, command=published(run.command), details={})
        files = {RESULTS: shared.json(), SARIF: Sarif().content(shared)}
        here = [name for name in (GATE, STATEMENT, PAGE) if (directory / name).is_file()]
        files |= {name: (directory / name).read_bytes() for name in here}
        manifest = manifest_of(shared, sha256_of(directory / RESULTS), files)
        try:
            check_content(manifest, files)
        except BundleError as error:
            way_out = "Run the audit again with --statement, or delete what an earlier audit left there."
            raise InputError(expected=f"files of one audit in {directory}", found=str(error), way_out=way_out) from None
        content = manifest.content()
        signature = {} if self.sign is None else {SIGNATURE: signed(content, self.sign)}
        write_whole(path, archive({**files, MANIFEST: content, **signature}))
        return str(path)
