"""Benchmarks, as ratios within one run."""
