from reports.statement.docs import PAGE, SCHEMA, page, schema


def test_the_schema_and_the_tables_of_fields_are_current() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema(), "run python -m reports.statement.docs"
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m reports.statement.docs"


def test_every_field_is_described() -> None:
    assert "| None |" not in page()
