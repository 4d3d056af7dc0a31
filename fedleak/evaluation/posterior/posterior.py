"""Adds to an evaluation the results of attacks with priors, and the bits that updates add to them."""

from fedleak.core.answers import Choices
from fedleak.evaluation.evaluation import Evaluation, joined
from fedleak.evaluation.posterior.choices import evaluate_choices
from fedleak.evaluation.posterior.posterior_metrics import Answers
from fedleak.evaluation.posterior.quantities import evaluate_quantities

POSTERIOR = (
    "bits",
    "bits-left",
    "bits-bound",
    "bits-share",
    "bits-possible",
    "bits-beyond-counts",
    "matched-clients",
    "matched-clients-bound",
    "calibration-error",
)
"""Metrics that are added."""


def with_posteriors(evaluation: Evaluation, *, seed: int, shuffled: bool = False) -> Evaluation:
    """An evaluation with the results of attacks together with the priors of their questions.

    The priors of a question are its baselines with `Attack.is_prior`. Every attack whose answers are known gets
    ``bits``; one with `Attack.with_prior` has results under ``NAME+prior`` too, the priors together under
    ``FAMILY/prior``. The weights of evidence and priors are fitted on the answers of other people, never on those of
    the person; see the other modules of `fedleak.evaluation.posterior`. Below five people, or two for each number of a
    vector, there is nothing to add. If `shuffled`, what each prior says of the answers of one kind is exchanged among
    them, which makes it a prior that says nothing; the population of vectors stays as it is.
    """
    # Answers to one question in one setting, by label; apart where settings differ, e.g. the calls of a client: so does
    # the evidence.
    questions: dict[tuple[str, str], Answers] = {}
    for label, parts in evaluation.answers.items():
        for part in parts:
            key = str(part.info.question), repr(sorted(part.context.setting.items(), key=str))
            questions.setdefault(key, {}).setdefault(label, []).append(part)
    evaluations = [evaluation]
    for answers in questions.values():
        first_parts = next(iter(answers.values()))
        if isinstance(first_parts[0].answers, Choices):
            evaluations += evaluate_choices(answers, seed, shuffled)
        else:
            evaluations += evaluate_quantities(answers, seed)
    return joined(evaluations)
