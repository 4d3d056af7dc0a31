"""Evidence bundle of a run, see `fedleak.reports.evidence_bundle`."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedleak.core.errors import InputError, require
from fedleak.core.io.files import sha256_of, write_whole
from fedleak.evaluation.run import Run
from fedleak.reports.evidence_bundle import (
    MANIFEST,
    RESULTS,
    SIGNATURE,
    STATEMENT,
    BundleError,
    archive,
    check_content,
    files_of,
    manifest_of,
    read_statement,
)
from fedleak.reports.exporters.exporter import Exporter
from fedleak.reports.shared_run import shared_run
from fedleak.reports.ssh_signature import signed


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
        statement_file = directory / STATEMENT
        statement_content = {}
        if statement_file.is_file():
            statement_content[STATEMENT] = statement_file.read_bytes()
        results = directory / RESULTS
        require(
            results.is_file(), f"{RESULTS}, whose hash a bundle holds", f"none in {directory}", "Run the audit again."
        )
        shared = shared_run(run)
        try:
            files = files_of(shared, read_statement(statement_content))
            manifest = manifest_of(shared, sha256_of(results), files)
            # The check of who receives it: a statement of another run in the folder shows here.
            check_content(manifest, files)
        except BundleError as error:
            way_out = "Run the audit again with --statement, or delete what an earlier audit left there."
            raise InputError(expected=f"files of one audit in {directory}", found=str(error), way_out=way_out) from None
        # The manifest has the hashes of all files, so its signature is one of them all.
        entries = {**files, MANIFEST: manifest.content()}
        if self.sign is not None:
            entries[SIGNATURE] = signed(entries[MANIFEST], self.sign)
        write_whole(path, archive(entries))
        return str(path)
