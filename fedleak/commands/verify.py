"""``fedleak verify``: hashes, structure and signature of an evidence bundle."""

from pathlib import Path

from fedleak.reports.evidence_bundle import BundleError, verified

FAILED = 3
"""Exit status if a bundle is not as it was written, or not signed by an allowed signer."""


def verify(bundle: str, allowed_signers: str | None = None) -> int:
    """Checks an evidence bundle, and prints one line."""
    try:
        print(f"bundle ok: {verified(Path(bundle), None if allowed_signers is None else Path(allowed_signers))}")
    except BundleError as error:
        print(f"BUNDLE FAILED: {bundle}: {error}")
        return FAILED
    return 0
