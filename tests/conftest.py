"""What holds for every test."""

import os

from protocol.seeding import KEY_VARIABLE

# What a training draws in secret is drawn the same in every test, in the processes that tests start too.
os.environ.setdefault(KEY_VARIABLE, "5e" * 32)
