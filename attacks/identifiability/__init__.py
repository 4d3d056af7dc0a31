"""Attacks on private user vectors, which never leave their clients (London 2020)."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.attacks.identifiability.likelihood import PACCatalogue as PACCatalogue
    from fedleak.attacks.identifiability.likelihood import PACConsensus as PACConsensus
    from fedleak.attacks.identifiability.likelihood import PACLikelihood as PACLikelihood
    from fedleak.attacks.identifiability.pac import PAC as PAC
    from fedleak.attacks.identifiability.pac import MeanItem as MeanItem
    from fedleak.attacks.identifiability.pac import PACSpectral as PACSpectral
    from fedleak.attacks.identifiability.pac import RandomVector as RandomVector

__all__ = exports(__name__)
