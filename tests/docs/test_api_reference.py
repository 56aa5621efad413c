"""The reference page of the API lists exactly the operations that exist."""

from tools.api_reference import PAGE, reference


def test_the_api_reference_is_up_to_date() -> None:
    assert PAGE.read_text() == reference(), "an operation has changed: run `make reference`"
