"""Bundles whose files were changed, with the hashes of what they are."""

import contextlib
import hashlib
import json

from fedleak.reports.evidence_bundle import MANIFEST, SIGNATURE

Entries = dict[str, bytes]


def with_hashes(entries: Entries) -> Entries:
    """The entries with a manifest of their own hashes."""
    manifest = json.loads(entries[MANIFEST])
    files = {name: content for name, content in entries.items() if name not in (MANIFEST, SIGNATURE)}
    with contextlib.suppress(TypeError):  # a manifest of another kind
        manifest["files"] = {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in files.items()
        }
    return {**entries, MANIFEST: json.dumps(manifest).encode()}
