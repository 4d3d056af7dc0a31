"""Baselines that fit every recording of interactions."""

from attacks.interactions.baselines import Chance, Popularity

__all__ = ["Chance", "Popularity"]
