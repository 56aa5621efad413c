"""The setting `shards`."""

import pytest

from sereno.errors import ConfigurationError
from sereno.settings import load
from sereno.shard_urls import parse_shard_options

URL = "postgresql://user:hidden-password@host/db"


def test_the_environment_names_shards_as_json_and_keeps_their_order() -> None:
    settings, _ = load(environment={"SERENO_SHARDS": f'{{"b": "{URL}", "a": "{URL}"}}'})
    assert list(settings.shards or {}) == ["b", "a"]
    assert "hidden-password" not in repr(settings)


def test_invalid_shards_are_refused_without_their_addresses(subtests: pytest.Subtests) -> None:
    for text in (
        f"a={URL}",
        f'["{URL}"]',
        '{"a": 1}',
        f'{{"A b": "{URL}"}}',
        f'{{"../a": "{URL}"}}',
        f'{{"a": "x{URL}"}}',
    ):
        with subtests.test(text), pytest.raises(ConfigurationError, match="SERENO_SHARDS") as refused:
            load(environment={"SERENO_SHARDS": text})
        assert "hidden-password" not in str(refused.value)
    for words in ([URL], [f"{URL}?host=x"], [f"a={URL}", f"a={URL}"], [f"A={URL}"], ["a=host/db"]):
        with subtests.test(str(words)), pytest.raises(ConfigurationError) as refused:
            parse_shard_options(words)
        assert "hidden-password" not in str(refused.value)
