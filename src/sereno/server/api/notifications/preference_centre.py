"""The preference centre: for recipients, with a token that the application created, and for admins."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from sereno.channels.email_content import LONGEST_ADDRESS
from sereno.errors import InvalidArguments
from sereno.notifications.recipients.digest_choices import DigestChange
from sereno.notifications.recipients.preference import LONGEST_DIGEST
from sereno.notifications.recipients.preference_centre import (
    LONGEST_ZONE,
    MOST_CHANGES,
    MOST_STOPPED,
    PreferenceCentre,
    PreferenceChanges,
)
from sereno.notifications.recipients.preference_choices import ChoiceChange
from sereno.notifications.recipients.preference_token import PREFIX
from sereno.notifications.recipients.quiet_hours import MOST_SPANS, QuietHours
from sereno.server.api.bounds import Name
from sereno.server.api.notifications.recipients import QuietBody
from sereno.server.api.problems import responses
from sereno.server.api.responses import json_response, response_model
from sereno.server.api.router import ALWAYS, Router
from sereno.server.shared.authenticator import SAFE
from sereno.server.shared.context import ServerContext
from sereno.server.shared.http_error import HTTPError
from sereno.server.shared.preference_access import OF_MESSAGE, PreferenceAccess
from sereno.server.shared.tenant_scope import their_tenant
from sereno.text import check_text

PATH = "/preference-centre"
ADDRESSES = f"{PATH}/addresses"
SHOWN = response_model(PreferenceCentre)
_BEARER = "bearer "


@dataclass(frozen=True)
class ActingOwner:
    """Whose preferences. `by`: the admin who reads or changes them; None for the recipient.

    `may_add`: whether addresses can be added too.
    """

    key: str
    tenant: str | None
    by: str | None = None
    may_add: bool = True


class ChoiceBody(BaseModel):
    """A choice, named as in `lines`: an event type of a category, a whole category, or everything on a channel."""

    model_config = ConfigDict(extra="forbid")

    category: Name | None = None
    event: Name | None = None
    channel: Name
    wanted: bool


class DigestBody(BaseModel):
    """For how many seconds messages of a category, or of an event type without one, are collected.

    0: each is sent at once; null: the usual time.
    """

    model_config = ConfigDict(extra="forbid")

    category: Name | None = None
    event: Name | None = None
    digest: Annotated[float, Field(ge=0, le=LONGEST_DIGEST)] | None


class CentreBody(BaseModel):
    """What changes; all else stays. `quiet`: hours for everything; null removes them, so that the default applies.

    `stop`: ids of addresses to which nothing is sent any more.
    """

    model_config = ConfigDict(extra="forbid")

    choices: Annotated[list[ChoiceBody], Field(max_length=MOST_CHANGES)] = []
    digests: Annotated[list[DigestBody], Field(max_length=MOST_CHANGES)] = []
    quiet: Annotated[list[QuietBody], Field(max_length=MOST_SPANS)] | None = None
    zone: Annotated[str, Field(max_length=LONGEST_ZONE)] | None = None
    stop: Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], Field(max_length=MOST_STOPPED)] = []

    def changes(self) -> PreferenceChanges:
        quiet: list[QuietHours] | msgspec.UnsetType | None = msgspec.UNSET
        if "quiet" in self.model_fields_set:
            spans = self.quiet
            quiet = None if spans is None else [QuietHours(each.start, each.end, each.days) for each in spans]
        choices = [ChoiceChange(**each.model_dump()) for each in self.choices]
        digests = [DigestChange(**each.model_dump()) for each in self.digests]
        return PreferenceChanges(choices=choices, digests=digests, quiet=quiet, zone=self.zone, stop=self.stop)


class NewAddressBody(BaseModel):
    """An address of the channel `email`. `language`: of the message, if the recipient has no locale."""

    model_config = ConfigDict(extra="forbid")

    address: Annotated[str, Field(min_length=3, max_length=LONGEST_ADDRESS)]
    language: Literal["en", "es", "pt"] = "en"


def acting_owner(
    request: Request,
    recipient: Annotated[str | None, Query(description="Key of the recipient; for admins.")] = None,  # noqa: ARG001 - for the document
    tenant: Annotated[str | None, Query(description="Tenant of the recipient; for admins.")] = None,  # noqa: ARG001 - see above
) -> ActingOwner:
    """Return whom `_authenticate` has found, before the body was read."""
    owner: ActingOwner = request.state.owner
    return owner


Owner = Annotated[ActingOwner, Depends(acting_owner)]


def routes(context: ServerContext) -> Router:
    """`/preference-centre`."""
    router = Router(context, "preference centre")
    access = PreferenceAccess(context)
    # These operations authenticate requests themselves.
    extra = {"x-role": "admin", "x-of-tenants": True, "x-own-authentication": True, "security": [{"token": []}]}
    documented = responses(*ALWAYS, HTTPStatus.TOO_MANY_REQUESTS)
    options: dict[str, Any] = {"responses": documented, "openapi_extra": extra, "response_model": SHOWN}

    async def authenticate(request: Request) -> None:
        request.state.owner = await _authenticate(context, access, request)

    router.checks[PATH] = authenticate
    router.checks[ADDRESSES] = authenticate

    @router.api_route(PATH, methods=["GET"], **options)
    async def show_preferences(owner: Owner) -> Response:
        """What a recipient gets on each channel, their quiet hours, time zone and addresses, as they see it.

        Addresses are masked. `is_fixed`: sent whatever the preferences are. `digest_choice`: for how long
        messages are collected, where that can be chosen.
        """
        return json_response(await access.read(owner.key, owner.tenant, may_add=owner.may_add))

    @router.api_route(PATH, methods=["PUT"], **options)
    async def change_preferences(owner: Owner, body: CentreBody) -> Response:
        """Change some of it. It applies to all that is not sent yet."""
        found = await access.change(owner.key, owner.tenant, body.changes(), may_add=owner.may_add, actor=owner.by)
        return json_response(found)

    sent: dict[str, Any] = {**options, "status_code": HTTPStatus.ACCEPTED, "response_model": None}

    @router.api_route(ADDRESSES, methods=["POST"], **sent)
    async def request_address(owner: Owner, body: NewAddressBody) -> Response:
        """Send a message with a link to the address, which is used once the link is confirmed. At most 5 an hour.

        The response is the same for an address that the recipient has already. 404 where `can_add` is empty, 403 with
        the token of a message's link.
        """
        if not owner.may_add:
            raise HTTPError(HTTPStatus.FORBIDDEN, OF_MESSAGE)
        await access.request_address(owner.key, owner.tenant, body.address, body.language, actor=owner.by)
        return Response(status_code=HTTPStatus.ACCEPTED)

    return router


async def _authenticate(context: ServerContext, access: PreferenceAccess, request: Request) -> ActingOwner:
    """Return whose preferences a request is about: those that its token names, or for admins the parameters."""
    is_change = request.method not in SAFE
    shown = request.headers.get("authorization", "")
    token = shown[len(_BEARER) :].strip()
    if shown[: len(_BEARER)].lower() == _BEARER and token.startswith(PREFIX):
        named = access.owner(token, is_change=is_change)
        return ActingOwner(named.recipient, named.tenant, may_add=named.may_add)
    who = await context.authenticator.check(request, "admin" if is_change else "viewer", of_tenants=True)
    if not who.may("admin"):
        raise HTTPError(HTTPStatus.FORBIDDEN, f"{who.name} is {who.role}; the preferences of others need admin")
    recipient = request.query_params.get("recipient")
    if recipient is None:
        raise InvalidArguments("the parameter recipient is missing: the key of the recipient")
    theirs = their_tenant(who, request.query_params.get("tenant"))
    check_text("recipient", recipient)
    check_text("tenant", theirs)
    return ActingOwner(recipient, theirs, who.actor)
