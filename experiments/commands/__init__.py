"""Subcommands of ``attack.py``, one file each, and the parsers of ``train.py`` and ``attack.py``."""
