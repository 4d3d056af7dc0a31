"""Checks of a received model: what a client can notice of a server that sends a model made to leak.

A check is one file: a class with a name and a statistic of what the client has, higher for more suspicious models.
`model_checks` finds all of them.
"""
