"""Every attack by the name under which its results are written."""

from attacks.base import Attack
from attacks.composition.baselines import RandomGuess, UniformPresent
from attacks.composition.corrected import UniformCorrected
from attacks.composition.decaf import Decaf, DecafEarlyStopped
from attacks.composition.decaf_match import DecafMatch
from attacks.identifiability.baselines import MeanItem
from attacks.identifiability.catalogue import PACCatalogue
from attacks.identifiability.likelihood import PACLikelihood
from attacks.identifiability.pac import PAC
from attacks.identifiability.spectral import PACSpectral
from attacks.interactions.chance import Chance
from attacks.interactions.codebook import Codebook
from attacks.interactions.direction import Direction
from attacks.interactions.imia import IMIA
from attacks.interactions.list_posterior import ListPosterior
from attacks.interactions.list_prior_only import PriorOnly
from attacks.interactions.matched_filter import MatchedFilter
from attacks.interactions.popularity import Popularity
from attacks.interactions.row_norm import RowNorm
from attacks.interactions.shared_metric import MetricPosterior

ATTACKS: dict[str, type[Attack]] = {
    attack.name: attack
    for attack in (
        *(Chance, Codebook, Direction, IMIA, ListPosterior, MatchedFilter, MetricPosterior),
        *(Popularity, PriorOnly, RowNorm),
        *(PAC, PACSpectral, PACLikelihood, PACCatalogue, MeanItem),
        *(Decaf, DecafEarlyStopped, DecafMatch, RandomGuess, UniformCorrected, UniformPresent),
    )
}
