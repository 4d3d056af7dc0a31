"""Subcommands of ``attack.py``, one file each, whose arguments `attack_parser` describes; parser of ``train.py``."""
