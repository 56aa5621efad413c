"""The page of the API lists every operation there is, and no other."""

from tools.api_reference import PAGE, reference


def test_the_page_is_what_the_document_says() -> None:
    assert PAGE.read_text() == reference(), "an operation has changed: make reference"
