"""Readers of other systems' messages, one file each, for the recorder, the verdict and the guard alike.

What a message says (who sent it, for which round, which arrays and numbers) is read here alone, so that a recording, a
verdict and the log of a site mean the same client and the same round.
"""
