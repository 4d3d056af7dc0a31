"""Checks of the site's guard that attack the message, one file each, as plug-ins of `fedleak_guard`.

A file has one class, which extends the check that `fedleak_guard.declared_checks` declares under the same name. The
guard finds the folder by the entry point ``fedleak`` of the group ``fedleak_guard.checks`` in pyproject.toml, in a
checkout without it. This folder alone imports the guard, and nothing imports this folder.
"""
