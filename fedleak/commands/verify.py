"""``fedleak verify``: hashes, structure and signature of an evidence bundle."""

from dataclasses import dataclass
from pathlib import Path

from fedleak.commands.shared.command import Command, Option, Options

FAILED = 3
"""Exit status if a bundle is not as it was written, or not signed by an allowed signer."""


@dataclass(frozen=True)
class VerifyOptions(Options):
    """Values of the options of ``fedleak verify``."""

    bundle: str
    allowed_signers: str | None = None


def verify(options: VerifyOptions) -> int:
    """Checks an evidence bundle, and prints one line."""
    from fedleak.reports.evidence_bundle import BundleError, verified

    signers = None if options.allowed_signers is None else Path(options.allowed_signers)
    try:
        print(f"bundle ok: {verified(Path(options.bundle), signers)}")
    except BundleError as error:
        print(f"BUNDLE FAILED: {options.bundle}: {error}")
        return FAILED
    return 0


COMMAND = Command(
    heading="results",
    place=41,
    summary="checks hashes, structure and signature of an evidence bundle",
    groups={
        "what to check": [
            Option("bundle", "archive that export --to bundle wrote", required=True, parsing={"metavar": "BUNDLE"}),
            Option(
                "--allowed-signers",
                "who may sign, in the format of ssh-keygen: the bundle must be signed by one of them",
                "a signature is not asked for",
                parsing={"metavar": "FILE"},
            ),
        ]
    },
    options=VerifyOptions,
    run=verify,
    description="The exit status is 0, or 3 if the bundle is not as it was written.",
)
