"""All that a check of releases found: p-values, messages without noise, and the clients that are concerned."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedleak.attacks.declared_privacy.findings import Array, Findings
from fedleak.attacks.declared_privacy.message_tests import WHOLE, MessageTests
from fedleak.core.release import Release

_BREAKING = ("reuse", "clip direction", "order", "numbers without noise")
"""Checks of which a finding leaves no guarantee at all."""
_MISSING = 0.5
"""Scale of a parameter's noise, over that of all, below which it counts as sent without noise."""


@dataclass(frozen=True)
class Reported:
    """All that was found.

    Attributes:
        findings: p-values of all tests.
        tests: the tests by the parameters of a group.
        bare: by parameter outside every release, the messages in which it is not zero.
        misread: parameters that are clipped after the noise, whose noise cannot be tested.
        miscalibrated: releases of which one send loses more than their epsilon.
        messages: number of messages, M.
        people: ``(K,)`` pseudonyms of the clients of each message; a sum has several.
        places: ``(K,)`` number of that message.
    """

    findings: Findings
    tests: Mapping[tuple[str, ...], MessageTests]
    bare: Mapping[str, Sequence[int]]
    misread: Sequence[str]
    miscalibrated: Sequence[Release]
    messages: int
    people: NDArray[np.int64]
    places: NDArray[np.int64]

    def concerned(self, messages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Pseudonyms, each once, of the clients of some messages."""
        return np.unique(self.people[np.isin(self.places, messages)])

    def factors(self) -> Array:
        """``(M,)`` smallest measured over declared scale that is a finding; 1 where the declared scale stands."""
        factor = np.ones(self.messages)
        for parameter in self.findings.parameters("noise scale"):
            for tested in self.findings.found("noise scale", parameter):
                ratio = np.clip(np.nan_to_num(tested.measured, nan=0.0), 0, 1)
                np.minimum.at(factor, tested.messages, np.broadcast_to(ratio[:, None], tested.messages.shape))
        return factor

    def broken(self) -> NDArray[np.bool_]:
        """``(M,)`` messages without any guarantee: a bare parameter, reused noise, no clip, or noise before it."""
        broken = np.zeros(self.messages, dtype=bool)
        for messages in self.bare.values():
            broken[list(messages)] = True
        for check in _BREAKING:
            for parameter in self.findings.parameters(check):
                for tested in self.findings.found(check, parameter):
                    broken[tested.messages] = True
        # More energy than noise and a clipped update have is an update beyond the clip, unless it is noise (a number).
        for parameter in self.findings.parameters("energy"):
            for tested in self.findings.found("energy", parameter):
                broken[tested.messages[np.isnan(tested.measured)]] = True
        ratios = self.ratios()
        for parameter in {*self.findings.parameters("noise scale")} - {WHOLE}:
            for tested in self.findings.found("noise scale", parameter):
                # What is measured in a parameter without noise is its update.
                of_all = np.nanmin(np.append(ratios[tested.messages].ravel(), 1.0))
                is_missing = tested.measured < _MISSING * of_all
                broken[tested.messages[is_missing]] = True
        return broken

    def ratios(self) -> Array:
        """``(M,)`` measured over declared scale of the noise of each message; NaN where unknown."""
        smallest = np.full(self.messages, np.nan)
        for tests in self.tests.values():
            for numbers, ratio in tests.conclusive.ratios:
                smallest[numbers] = np.fmin(smallest[numbers], ratio)
        return smallest

    def counts(self, clients: NDArray[np.int64]) -> list[int]:
        """Number of findings that concern each client."""
        concerned = [set(self.concerned(messages).tolist()) for _, _, messages in self._all()]
        counts = []
        for client in clients:
            counts.append(sum(int(client) in clients_of_finding for clients_of_finding in concerned))
        return counts

    def _all(self) -> Iterator[tuple[str, str, NDArray[np.int64]]]:
        """Check, parameter and messages of every finding."""
        for check in self.findings.checks:
            for parameter in dict.fromkeys(self.findings.parameters(check)):
                messages = [tested.messages.flatten() for tested in self.findings.found(check, parameter)]
                if messages:
                    yield check, parameter, np.unique(np.concatenate(messages))
        for parameter, bare_messages in self.bare.items():
            yield "coverage", parameter, np.asarray(bare_messages)
        for _ in self.miscalibrated:
            yield "sensitivity", WHOLE, np.arange(self.messages)

    def found(self) -> dict[tuple[str, str], int]:
        """Number of clients by check and parameter of every finding."""
        return {(check, name): len(self.concerned(messages)) for check, name, messages in self._all()}
