"""The base class of all attacks."""

import abc
import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, final

import torch
from torch import Tensor

from fedleak.core.class_paths import check_declared
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Estimate, EstimateError
from fedleak.core.history import History
from fedleak.core.ranges import check_fields
from fedleak.core.taxonomy import NONE_FITS, TAXONOMY, Taxonomy
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView, View

Comparison = Literal["", "prior", "blind", "control"]
"""What a baseline is as a comparison, see `Attack.comparison`."""
WithPrior = Literal["likelihood", "rank", "posterior"]
"""How a prior is added to the scores of an attack, see `Attack.with_prior`."""
Variants = Mapping[str, Mapping[str, Any]]
"""Values of the variants of an attack by key."""


class Misfit(NamedTuple):
    """Why a recording's ground truth is about something else than an attack infers from its messages.

    Attributes:
        says: the reason as a sentence.
        way_out: what to do about it; empty for nothing.
    """

    says: str
    way_out: str = ""


class Attack(abc.ABC):
    """Base class of attacks: hyper-parameters in the constructor, a server view in, an estimate out.

    A subclass describes itself by class attributes; nothing else in the project lists attacks by name. An attack with
    hyper-parameters is best a frozen dataclass, whose choices and ranges are checked by their types (`ranges`).

    Attributes:
        name: name in the results, unique within the family.
        manipulated_names: names of its results by the server's manipulation, None for an honest server, where papers
            distinguish what the server sends; they are `name` for all others.
        variants: values of the attack's variants: arguments, or attributes of this list. `fedleak.evaluation.registry`
            makes an attack of each, named ``NAME-KEY`` unless the values have a `name`; ``Variants:`` in the docstring
            says what each means. Subclasses inherit them.
        variant_of: the attack of which `fedleak.evaluation.registry` made it; None for others.
        variant_key: its key among the variants of that attack; None for others.
        listed: whether `fedleak list` and audits have it; a variant that only tables ask for has not.
        family: the question it answers; ``family/name`` is unique.
        taxonomy: names of the question in public taxonomies; None for those of the family in `fedleak.core.taxonomy`.
        threat_model: what the adversary sees and knows.
        estimates: the type it returns, which says what the server infers, and scores it.
        baseline: whether it is listed beside the attacks and not as one of them. A baseline does not read the update of
            the client it is about; it may read another client's in its place, and only a baseline may work without any.
        control: whether it is a baseline that reads updates which say nothing more of the client it is about, such as
            another client's, so that it shows what a method reaches by chance.
        references: the publications that define the attack, by their keys in `fedleak.core.bibliography`, e.g.
            ``("Pham25, Algorithm 1",)``; empty for our own.
        exact: whether it solves for the answer where theory guarantees one, instead of a statistical estimate.
        is_prior: whether it is a baseline whose scores say, without the update, how likely the answers are, so that its
            log odds can be added to those of an attack.
        of_others: whether it is a baseline that may read the updates of other clients, and never the victim's.
        with_prior: how a prior is added to its scores, for results under ``NAME+prior``: ``likelihood`` if they are
            log-likelihood ratios of the answers up to one factor, ``rank`` if a higher score only means more likely,
            ``posterior`` if they are posterior probabilities, so that none is added; any of them for estimates of
            vectors. None for no such results.
        certifies: whether it says of which answers it is certain, so that their share is reported without ground truth.
        cost: computational cost, as text; if its first word is milliseconds, seconds or minutes, a progress bar takes
            it for the time per victim until the attack has run.
        audited_victims: number of clients of the first round that an audit attacks, drawn at random; None for all
            clients of all rounds.
        slow: whether it takes minutes, so that an audit runs it only with ``--slow``.
        for_comparison: whether an audit runs it only with ``--published``: a published method that others equal or
            surpass wherever it was measured, see ``docs/tools/best_attacks.py``. Neither subclasses nor variants
            inherit it.
        quadratic: whether it compares every message with every other one of its round.
        view: the annotation of the first argument of `run`: `RoundView` for an attack on the clients of one round,
            `History` for an attack on all messages of a recording together.

    Example:
        >>> import torch
        >>> from fedleak import Attack, RoundView, ThreatModel
        >>> from fedleak.attacks.composition.estimates import CompositionEstimate
        >>> class LargestBias(Attack):
        ...     '''All examples are of the class whose bias grew most.'''
        ...
        ...     name = "largest-bias"
        ...     family = "composition"
        ...     threat_model = ThreatModel(sees="each update", knows="nothing else", needs=("deltas:bias",))
        ...     estimates = CompositionEstimate
        ...
        ...     def run(self, view, *, generator):
        ...         grew = view.deltas["bias"]
        ...         present = grew == grew.amax(1, keepdim=True)
        ...         unknown = torch.full(grew.shape, torch.nan)  # it gives no intervals
        ...         return CompositionEstimate(proportions=present.double(), low=unknown, high=unknown, present=present)
        >>> view = RoundView(
        ...     round=0,
        ...     pseudonyms=torch.tensor([7, 8]),
        ...     example_counts=torch.tensor([10, 30]),
        ...     deltas={"bias": torch.tensor([[-0.1, 0.3, -0.2], [0.2, -0.1, -0.1]])},
        ...     model={"bias": torch.zeros(3)},
        ... )
        >>> LargestBias()(view, generator=torch.Generator()).proportions
        tensor([[0., 1., 0.],
                [1., 0., 0.]], dtype=torch.float64)
    """

    name: ClassVar[str]
    manipulated_names: ClassVar[Mapping[str | None, str]] = {}
    variants: ClassVar[Variants] = {}
    variant_of: ClassVar[type["Attack"] | None] = None
    variant_key: ClassVar[str | None] = None
    listed: ClassVar[bool] = True
    family: ClassVar[str]
    taxonomy: ClassVar[Taxonomy | None] = None
    threat_model: ClassVar[ThreatModel]
    estimates: ClassVar[type[Estimate]]
    baseline: ClassVar[bool] = False
    control: ClassVar[bool] = False
    references: ClassVar[tuple[str, ...]] = ()
    exact: ClassVar[bool] = False
    is_prior: ClassVar[bool] = False
    of_others: ClassVar[bool] = False
    with_prior: ClassVar[WithPrior | None] = None
    certifies: ClassVar[bool] = False
    cost: ClassVar[str] = "milliseconds per victim"
    audited_victims: ClassVar[int | None] = None
    slow: ClassVar[bool] = False
    for_comparison: ClassVar[bool] = False
    quadratic: ClassVar[bool] = False
    view: ClassVar[type[View]] = RoundView

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Reads off `run` which view it takes, and checks what an attack must declare."""
        super().__init_subclass__(**kwargs)
        # The annotation may be the class or, with postponed evaluation, its name.
        view_type = None
        if "run" in cls.__dict__:
            view_type = inspect.get_annotations(cls.__dict__["run"]).get("view")
        if getattr(view_type, "__name__", view_type) == History.__name__:
            cls.view = History
        # Not inherited: what is derived from a method for comparison runs as usual unless it says otherwise.
        if "for_comparison" not in cls.__dict__:
            cls.for_comparison = False
        if hasattr(cls, "name"):  # others are bases of attacks
            check_declared(cls, Attack)

    def __post_init__(self) -> None:
        if dataclasses.is_dataclass(self):
            check_fields(self)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Every name that its results may have, `name` first."""
        return tuple(dict.fromkeys((cls.name, *cls.manipulated_names.values())))

    @classmethod
    def comparison(cls) -> Comparison:
        """What a baseline is as a comparison of attacks; empty for an attack.

        A ``prior`` says how likely the answers are without the update, a ``blind`` baseline answers without it, and a
        ``control`` reads updates that say nothing more of the client it is about.
        """
        if not cls.baseline:
            return ""
        if cls.control:
            return "control"
        return "prior" if cls.is_prior else "blind"

    @classmethod
    def public_names(cls) -> Taxonomy:
        """Names of the question in public taxonomies, with the letter of its threat model."""
        taxonomy = cls.taxonomy or TAXONOMY.get(cls.family, NONE_FITS)
        return dataclasses.replace(taxonomy, letter=taxonomy.letter or cls.threat_model.letter)

    def misfit(self, view: View, truth: Mapping[str, Tensor]) -> Misfit | None:
        """Why the ground truth of a view, which has all that the estimate asks for, cannot judge what is inferred.

        None if it can. An attack overrides it that reads off the model what it infers something about.
        """
        return None

    @final
    def label(self, view: View) -> str:
        """The name in the results for a view, see `manipulated_names`."""
        return self.manipulated_names.get(view.manipulation, self.name)

    @final
    def __call__(self, view: View, *, generator: torch.Generator) -> Estimate:
        """Checks the view, attacks with one source of randomness, and checks the estimate.

        Raises:
            ViewError: the view lacks something that the attack needs, or a delta holds NaN or infinity.
            EstimateError: the attack is defective.
        """
        if not isinstance(view, self.view):
            raise ViewError(f"attack {self.name!r} needs a {self.view.__name__}, got a {type(view).__name__}")
        missing = view.missing(self.threat_model.needs)
        if missing:
            raise ViewError(f"attack {self.name!r} needs {', '.join(missing)}, which this recording does not have")
        for parameter, delta in view.deltas.items():
            # A sum is finite only if all numbers are, and takes a tenth of the time; a sum may also overflow.
            if not bool(torch.isfinite(delta.sum())) and not bool(torch.isfinite(delta).all()):
                raise ViewError(f"round {view.round}: the deltas of {parameter!r} hold NaN or infinity")
        estimate = self.run(view, generator=generator)
        if not isinstance(estimate, self.estimates):
            raise EstimateError(f"{self.name}: expected {self.estimates.__name__}, got {type(estimate).__name__}")
        estimate.check(view)
        return estimate

    @abc.abstractmethod
    def run(self, view: Any, *, generator: torch.Generator) -> Estimate:
        """The attack itself, on a view that `__call__` has checked.

        What other attacks on the same view compute too is asked for by ``view.shared.value``, see `SharedWork`.
        """

    def __repr__(self) -> str:
        """The class and its hyper-parameters, as in a call of the constructor."""
        names = inspect.signature(type(self)).parameters
        arguments = ", ".join(f"{name}={getattr(self, name)!r}" for name in names if hasattr(self, name))
        return f"{type(self).__name__}({arguments})"
