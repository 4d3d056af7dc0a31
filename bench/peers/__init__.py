"""Federated rounds of fedleak and of other simulators on the same jobs, in turns, within one run."""
