"""What the HTTP API accepts and returns. Every input is checked: it may come from anyone."""

from typing import Annotated, Literal

import msgspec
from fastapi import Path
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from sereno import InvalidAddress
from tenders.app import push
from tenders.phones import LOCALE, Installation
from tenders.preferences import Preferences
from tenders.regions import folded, region_of
from tenders.tender import LARGEST_AMOUNT

MOST_VALUES, MOST_WORDS, LONGEST_WORD = 20, 10, 40


def _known_region(text: str) -> str:
    region = region_of(text)
    if region is None:
        raise ValueError("this is no region of Chile")
    return region


def _push_token(token: str) -> str:
    try:
        return push.check_address(token)
    except InvalidAddress as error:
        raise ValueError(str(error)) from None


def _searchable(word: str) -> str:
    # Marks disappear when accents are removed, and some letters become many.
    if not 2 <= len(folded(word)) <= LONGEST_WORD:
        raise ValueError(f"a word has 2 to {LONGEST_WORD} letters")
    return word


InstallationId = Annotated[str, Path(pattern=r"^[A-Za-z0-9._:-]{8,64}$")]
Region = Annotated[str, StringConstraints(max_length=100), AfterValidator(_known_region)]
Kind = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9]$")]
Category = Annotated[str, StringConstraints(pattern=r"^[0-9]{2,8}$")]
Word = Annotated[
    str,
    StringConstraints(strip_whitespace=True, max_length=LONGEST_WORD, pattern=r"^[^\x00-\x1f\x7f]*$"),
    AfterValidator(_searchable),
]
Amount = Annotated[int, Field(ge=0, lt=LARGEST_AMOUNT)]
Token = Annotated[str, StringConstraints(max_length=250), AfterValidator(_push_token)]


class Strict(BaseModel):
    """Refuses unknown names, and values of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PhoneBody(Strict):
    """What an installation says of itself at each start. `push_token`: null while the user does not allow pushes."""

    push_token: Token | None
    platform: Literal["ios", "android", "unknown"] = "unknown"
    app_version: Annotated[str, StringConstraints(pattern=r"^[\w.+-]{1,40}$")] = "unknown"
    locale: Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[A-Z]{2})?$")] = LOCALE


class PreferencesBody(Strict):
    """What a phone wants to hear of; empty lists and nulls mean any."""

    enabled: bool = True
    regions: Annotated[list[Region], Field(max_length=MOST_VALUES)] = []
    kinds: Annotated[list[Kind], Field(max_length=MOST_VALUES)] = []
    categories: Annotated[list[Category], Field(max_length=MOST_VALUES)] = []
    amount_min: Amount | None = None
    amount_max: Amount | None = None
    words: Annotated[list[Word], Field(max_length=MOST_WORDS)] = []

    @model_validator(mode="after")
    def _check_amounts(self) -> "PreferencesBody":
        if self.amount_min is not None and self.amount_max is not None and self.amount_min > self.amount_max:
            raise ValueError("amount_min is more than amount_max")
        return self

    def as_preferences(self) -> Preferences:
        return msgspec.convert(self.model_dump(), Preferences)


class Stored(BaseModel):
    """An installation as it is stored. `secret`: in the response to its first registration only."""

    id: str
    phone: PhoneBody
    preferences: PreferencesBody
    secret: str | None = None

    @classmethod
    def of(cls, found: Installation) -> "Stored":
        return cls(
            id=found.id,
            phone=PhoneBody.model_validate_json(msgspec.json.encode(found.phone)),
            preferences=PreferencesBody.model_validate_json(msgspec.json.encode(found.preferences)),
        )
