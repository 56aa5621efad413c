"""schema.sql equals the result of the migrations."""

import os

import pytest

from sereno.database.embedded.programs import wheel_bin_dir
from tools.dump_schema import SCHEMA_FILE, dump


@pytest.mark.skipif("SERENO_TEST_POSTGRES_BIN" in os.environ, reason="the file is a dump of the embedded PostgreSQL")
def test_schema_sql_is_the_result_of_the_migrations(database_url: str) -> None:
    assert dump(wheel_bin_dir(), database_url) == SCHEMA_FILE.read_text(), "run `make schema`"
