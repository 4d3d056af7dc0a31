"""Federated rounds of other simulators and of ours: the same jobs, in turns, within one run."""
