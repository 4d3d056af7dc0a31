"""Checks of a message, one file each; see `fedleak_guard.check.Check`."""
