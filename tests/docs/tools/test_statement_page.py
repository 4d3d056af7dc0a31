from docs.tools.statement_page import PAGE, SCHEMA, page, schema


def test_the_schema_and_the_tables_of_fields_are_current() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema(), "run python -m docs.tools.statement_page"
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m docs.tools.statement_page"


def test_every_field_is_described() -> None:
    assert "| None |" not in page()
