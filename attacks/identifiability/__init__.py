"""Attacks on private user vectors, which never leave their clients (London 2020)."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.attacks.identifiability.likelihood import PACCatalogue as PACCatalogue
    from fedleak.attacks.identifiability.likelihood import PACConsensus as PACConsensus
    from fedleak.attacks.identifiability.likelihood import PACLikelihood as PACLikelihood
    from fedleak.attacks.identifiability.pac import PAC as PAC
    from fedleak.attacks.identifiability.pac import MeanItem as MeanItem
    from fedleak.attacks.identifiability.pac import PACSpectral as PACSpectral
    from fedleak.attacks.identifiability.pac import RandomVector as RandomVector
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "PACCatalogue": "fedleak.attacks.identifiability.likelihood",
            "PACConsensus": "fedleak.attacks.identifiability.likelihood",
            "PACLikelihood": "fedleak.attacks.identifiability.likelihood",
            "PAC": "fedleak.attacks.identifiability.pac",
            "MeanItem": "fedleak.attacks.identifiability.pac",
            "PACSpectral": "fedleak.attacks.identifiability.pac",
            "RandomVector": "fedleak.attacks.identifiability.pac",
        },
    )
