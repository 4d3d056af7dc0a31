"""Description of the scores of an attack on a view."""

from fedleak.core.attack import Attack
from fedleak.core.view import View
from fedleak.evaluation.channel import no_bound
from fedleak.evaluation.scores import AttackInfo, Role


def line_of(attack: Attack, view: View) -> AttackInfo:
    """Line of an attack on a view."""
    unbounded = no_bound(view)
    role: Role = "published" if attack.references else "ours"
    if attack.baseline:
        role = "baseline"
    return AttackInfo(
        name=attack.name,
        variant=attack.variant_key,
        role=role,
        comparison=attack.comparison(),
        family=attack.family,
        question=attack.estimates.question(),
        sees=attack.threat_model.sees,
        knows=attack.threat_model.knows,
        active=view.manipulation is not None,
        tells=attack.estimates.inferred,
        unbounded=(unbounded,) if unbounded else (),
    )
