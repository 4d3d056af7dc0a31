"""Attacks on private user vectors, which never leave their clients (London 2020)."""

from attacks.identifiability.likelihood import PACCatalogue, PACLikelihood
from attacks.identifiability.pac import PAC, MeanItem, PACSpectral, RandomVector

__all__ = ["PAC", "MeanItem", "PACCatalogue", "PACLikelihood", "PACSpectral", "RandomVector"]
