"""Gradient matching of texts: vectors of words whose gradient is near to the received one."""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedleak.attacks.reconstruction.estimates import ReconstructionAttack, TextsEstimate, reconstruction
from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.client.decoder import BODY
from fedleak.client.pretrained import PretrainedAlgorithm
from fedleak.client.text import EMBEDDING, OUTPUT, PLACE, TextAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.progress import with_progress
from fedleak.core.ranges import PositiveFloat, PositiveInt
from fedleak.core.view import RoundView

Distance = Callable[[list[Tensor], list[Tensor]], Tensor]
"""Distance of the gradients of a candidate from the received ones."""
_PLACES = ("wpe.weight", "position_embeddings.weight", f"{BODY}.position.weight")
"""Ends of the names of tables of places, of which a text changes the rows of its own."""

LABEL_RATE = 0.1
"""Step of Adam for the logits of labels, which are numbers of about 1 whatever the words' vectors have."""
_ROUNDING = 1e-5
"""Length of a parameter's change, relative to that of the largest, up to which it is rounding."""


@dataclass(frozen=True)
class MatchedNetwork:
    """A network as a function of the vectors of its words.

    Attributes:
        algorithm: how clients train it.
        model: the parameters that were sent.
        table: name of the vectors ``(V, D)`` of the words.
        predicts: whether each place predicts the next word, or a text its class.
    """

    algorithm: TextAlgorithm | PretrainedAlgorithm
    model: dict[str, Tensor]
    table: str
    predicts: bool

    @classmethod
    def of(cls, view: RoundView) -> "MatchedNetwork":
        """The network of a view.

        Raises:
            ViewError: it is not trained whole by plain descent in one step, or reads no texts.
        """
        algorithm = view.require(ExampleAlgorithm)
        if not isinstance(algorithm, TextAlgorithm | PretrainedAlgorithm):
            raise ViewError(f"expected clients that train on texts, got {algorithm.name}")
        if not algorithm.local.plain_sgd or bool((algorithm.steps(view.example_counts) > 1).any()):
            raise ViewError("expected one step of plain gradient descent, got another training")
        model = {name: value.detach() for name, value in view.model.items()}
        if isinstance(algorithm, TextAlgorithm):
            if algorithm.rates:
                raise ViewError("expected a network that predicts words or classes, got one that predicts ratings")
            return cls(algorithm, model, EMBEDDING, True)
        if algorithm.task == "image-classification" or algorithm.adapter.variant != "none":
            raise ViewError("expected a network that reads texts and is trained whole (adapter.variant: none)")
        return cls(algorithm, model, algorithm.word_table, algorithm.task == "causal-lm")

    @property
    def words(self) -> Tensor:
        """``(V, D)`` vectors of the words, as texts number them."""
        return self.by_word(self.model[self.table])

    def by_word(self, rows: Tensor) -> Tensor:
        """Rows ``(V, ...)`` of the network's table, as texts number words."""
        if isinstance(self.algorithm, PretrainedAlgorithm):
            return self.algorithm.by_token(rows)
        return rows

    @property
    def places(self) -> int:
        """Largest number of words of a text; of a network without vectors of places, any."""
        tables = [self.model[name] for name in self.matched if name.endswith(_PLACES)]
        return min((len(table) for table in tables), default=2**20)

    @property
    def matched(self) -> list[str]:
        """Parameters whose gradients are compared: all but the vectors of the words, as published."""
        return [name for name in self.model if name != self.table]

    def label_shape(self, sentences: int, length: int) -> tuple[int, ...]:
        """Shape of the logits of what is predicted from texts."""
        if self.predicts:
            return (sentences, length - 1, len(self.words))
        assert isinstance(self.algorithm, PretrainedAlgorithm)
        return (sentences, int(self.algorithm.network.config.num_labels))  # type: ignore[union-attr, arg-type]

    def logits(self, parameters: dict[str, Tensor], vectors: Tensor) -> Tensor:
        """Logits that texts of vectors ``(N, L, D)`` give, in the shape of the labels."""
        if isinstance(self.algorithm, PretrainedAlgorithm):
            outputs = self.algorithm.vector_outputs(parameters, vectors)
            return outputs[:, :-1] if self.predicts else outputs
        # The table is exchanged for one that has the vectors as rows.
        numbers = torch.arange(vectors.shape[0] * vectors.shape[1]).reshape(vectors.shape[:2])
        parameters = {**parameters, EMBEDDING: vectors.flatten(0, 1)}
        states = self.algorithm.states(parameters, {PLACE: numbers}).transpose(0, 1)
        return functional.linear(states, parameters[f"{OUTPUT}.weight"], parameters[f"{OUTPUT}.bias"])

    def gradients(self, vectors: Tensor, labels: Tensor, *, differentiable: bool = False) -> list[Tensor]:
        """Gradients of the mean loss of texts ``(N, L, D)`` with logits of labels, for each of `matched`."""
        parameters = dict(self.model)
        for name in self.matched:
            parameters[name] = self.model[name].requires_grad_()
        # Attention as plain products: the gradient of a fused kernel has no gradient of its own.
        with sdpa_kernel(SDPBackend.MATH):
            logits = self.logits(parameters, vectors)
        targets = labels.softmax(-1)
        loss = -(targets * logits.log_softmax(-1)).sum(-1).mean()
        chosen = [parameters[name] for name in self.matched]
        found = torch.autograd.grad(loss, chosen, create_graph=differentiable, allow_unused=True)
        gradients = []
        for gradient, value in zip(found, chosen, strict=True):
            if gradient is None:
                gradient = torch.zeros_like(value)  # e.g. what is read from no text
            gradients.append(gradient)
        return gradients


@dataclass(frozen=True)
class Target:
    """What one client's texts have to explain.

    Attributes:
        network: the network.
        gradients: received gradients, for each of `MatchedNetwork.matched`.
        sentences: number of its texts.
        length: number of words of the longest.
        allowed: ``(V,)`` bool, words that may occur.
    """

    network: MatchedNetwork
    gradients: list[Tensor]
    sentences: int
    length: int
    allowed: Tensor

    @classmethod
    def of(cls, view: RoundView, victim: int, network: MatchedNetwork, *, longest: int, touched_rows: bool) -> "Target":
        """The target of one client.

        Raises:
            ViewError: a parameter's delta is not recorded, or nothing shows how long texts are.
        """
        missing = [name for name in network.matched if name not in view.deltas]
        if missing:
            raise ViewError(f"expected the deltas of all parameters; got a recording without {missing[0]}")
        rate = network.algorithm.local.learning_rate
        gradients = [-view.deltas[name][victim] / rate for name in network.matched]
        allowed = torch.ones(len(network.words), dtype=torch.bool)
        if touched_rows:
            if network.table not in view.deltas or view.deltas[network.table].shape[1:] != network.words.shape:
                raise ViewError(f"expected the delta of the whole {network.table}; record it")
            # A table that is tied to the last layer changes in all rows, and says nothing.
            allowed = network.by_word(view.deltas[network.table][victim].any(1))
        allowed = allowed.clone()
        allowed[0] = False  # padding
        if not bool(allowed.any()):
            allowed[1:] = True
        length = min(_length(view.deltas, victim, network), longest, network.places)
        return cls(network, gradients, int(view.example_counts[victim]), max(length, 2), allowed)

    def loss(self, distance: Distance, vectors: Tensor, labels: Tensor, *, differentiable: bool = False) -> Tensor:
        """Distance of the gradients of texts from the received ones."""
        return distance(self.network.gradients(vectors, labels, differentiable=differentiable), self.gradients)

    def words(self, candidate: "Candidate") -> Tensor:
        """``(N, L)`` words of the greatest cosine with a candidate's vectors; a word that is not read, by its label."""
        unit = functional.normalize(self.network.words, dim=1)
        cosines = functional.normalize(candidate.vectors, dim=-1) @ unit.T
        words = cosines.masked_fill(~self.allowed, -torch.inf).argmax(-1)
        if self.network.predicts:
            words[:, -1] = candidate.labels[:, -1].masked_fill(~self.allowed, -torch.inf).argmax(-1)
        return words


def _length(deltas: Mapping[str, Tensor], victim: int, network: MatchedNetwork) -> int:
    """Number of words of a client's longest text: the places whose vectors change, and a last word that is not read.

    Raises:
        ViewError: the network has no vectors of places.
    """
    names = [name for name in network.matched if name.endswith(_PLACES)]
    if not names:
        raise ViewError("expected a network with learned places, whose changed rows show how long the texts are")
    changed = deltas[names[0]][victim].any(1).nonzero().flatten()
    if not len(changed):
        return 2
    return int(changed.max()) + 1 + int(network.predicts)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Texts as vectors ``(N, L, D)``, with the logits of their labels."""

    vectors: Tensor
    labels: Tensor

    def permuted(self, sentence: int, order: Tensor) -> "Candidate":
        """The same with another order ``(L,)`` of one sentence's words, and of the labels of each place."""
        vectors = self.vectors.clone()
        vectors[sentence] = self.vectors[sentence, order]
        labels = self.labels
        if labels.dim() == 3:
            # Label t is that of word t + 1; that of the first word is not predicted, and left out.
            moved = torch.cat([torch.zeros_like(labels[sentence, :1]), labels[sentence]])[order]
            labels = labels.clone()
            labels[sentence] = moved[1:]
        return dataclasses.replace(self, vectors=vectors, labels=labels)


def drawn(target: Target, size: float, generator: torch.Generator) -> Candidate:
    """Texts of random vectors of one length, with labels that are all equally probable."""
    width = target.network.words.shape[1]
    vectors = torch.randn(target.sentences, target.length, width, generator=generator)
    vectors = size * functional.normalize(vectors, dim=-1)
    labels = torch.zeros(target.network.label_shape(target.sentences, target.length))
    return Candidate(vectors=vectors, labels=labels)


def squared_and_absolute(alpha: float) -> Distance:
    """Distance of TAG: ``|g - g'|_2^2 + alpha |g - g'|_1``."""

    def distance(gradients: list[Tensor], received: list[Tensor]) -> Tensor:
        terms = []
        for gradient, target in zip(gradients, received, strict=True):
            difference = gradient - target
            terms.append(difference.square().sum() + alpha * difference.abs().sum())
        return torch.stack(terms).sum()

    return distance


def mean_cosine(gradients: list[Tensor], received: list[Tensor]) -> Tensor:
    """Distance of LAMP: 1 minus the cosine, a mean over parameters whose change is more than rounding."""
    terms = []
    least = _ROUNDING * max(float(target.norm()) for target in received)
    for gradient, target in zip(gradients, received, strict=True):
        # Biases of keys have no gradient, as a softmax does not change by them.
        if float(target.norm()) > least:
            terms.append(1 - functional.cosine_similarity(gradient.flatten(), target.flatten(), dim=0))
    return torch.stack(terms).mean()


@dataclass(frozen=True, kw_only=True)
class TextMatchingAttack(ReconstructionAttack):
    """Base class of gradient matching of texts: each client's texts by `search`.

    Args:
        rate: step of Adam, relative to the root mean square of a number of the words' vectors, which is 0.05 in BERT.
        max_iter: steps.
        longest: largest number of words of a text.
        touched_rows: only words whose vectors changed may occur; the published attacks do not read the words' vectors.
    """

    audited_victims = 4
    slow = True
    estimates = TextsEstimate
    cost = "minutes per victim"

    rate: PositiveFloat = 2.0
    max_iter: PositiveInt = 2500
    longest: PositiveInt = 32
    touched_rows: bool = False

    def run(self, view: RoundView, *, generator: torch.Generator) -> TextsEstimate:
        network = MatchedNetwork.of(view)
        records = list[Tensor]()
        for victim in with_progress(range(view.victims)):
            target = Target.of(view, victim, network, longest=self.longest, touched_rows=self.touched_rows)
            records.append(target.words(self.search(view, target, generator)))
        longest = max(texts.shape[1] for texts in records)
        padded = [functional.pad(texts, (0, longest - texts.shape[1])) for texts in records]
        return TextsEstimate(**vars(reconstruction(padded)))

    @abc.abstractmethod
    def search(self, view: RoundView, target: Target, generator: torch.Generator) -> Candidate:
        """Texts of one client."""

    def step_size(self, target: Target) -> float:
        """Step of Adam in the units of the words' vectors."""
        return self.rate * float(target.network.words.square().mean().sqrt())
