"""Page of a statement."""

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fedleak.core.places import TEMPLATES
from fedleak.reports.content_policy import content_policy
from fedleak.reports.statement.combined import why_not_combined
from fedleak.reports.statement.content import Statement
from fedleak.reports.statement.numbers import in_percent, percent, shown


def html(statement: Statement) -> str:
    """Page of a statement: one page first, the details on further pages."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"shown": shown, "percent": percent, "in_percent": in_percent}
    return environment.get_template("statement.html.j2").render(
        statement=statement, why_not_combined=why_not_combined, policy=content_policy()
    )
