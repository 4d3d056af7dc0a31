"""Files of a command are for the account that runs it: 0600 in folders of 0700, whatever libraries write them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_OTHERS = 0o077
"""Permissions of the group and of others."""
_umask_given: int | None = None
"""The umask before `private_files`; None outside of it."""


@contextmanager
def private_files() -> Iterator[None]:
    """Takes the permissions of others from all that this process and its children create in the block.

    The umask is one of the process, so the libraries that write logs and checkpoints follow it too. What it forbids
    already stays forbidden.
    """
    global _umask_given
    outer_umask = _umask_given
    before = os.umask(_OTHERS)
    # The umask can only be read by setting it: only now is it known what else it took away.
    os.umask(before | _OTHERS)
    _umask_given = before if outer_umask is None else outer_umask
    try:
        yield
    finally:
        os.umask(before)
        _umask_given = outer_umask


@contextmanager
def shared_files() -> Iterator[None]:
    """Lets files that are public anyway, such as downloads into a folder of several accounts, be as the umask says."""
    if _umask_given is None:
        yield
        return
    before = os.umask(_umask_given)
    try:
        yield
    finally:
        os.umask(before)
