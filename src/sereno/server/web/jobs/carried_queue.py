"""The line about its carrier on the card of a queue."""

from collections.abc import Iterator
from dataclasses import dataclass

from sereno.jobs.queries.carriers import CarrierLine
from sereno.server.web.numbers import figure
from sereno.server.web.page_request import PageRequest
from sereno.server.web.times import length

SHADES = {"up": "ok", "away": "bad", "unknown": "paused"}


@dataclass(frozen=True, slots=True)
class CarrierNote:
    """What a card says about a carrier: its facts, and a sentence if something is to be done."""

    line: CarrierLine
    shade: str
    facts: list[str]
    advice: str


def carrier_note(page: PageRequest, line: CarrierLine | None) -> CarrierNote | None:
    """Return the note for a carried queue; None for others."""
    if line is None:
        return None
    return CarrierNote(line, SHADES[line.state], list(_facts(page, line)), _advice(page, line))


def _facts(page: PageRequest, line: CarrierLine) -> Iterator[str]:
    if line.messages:
        jobs, messages = figure(line.pending_jobs), figure(line.messages)
        yield page.say("about %(jobs)s jobs in %(messages)s messages", jobs=jobs, messages=messages)
    else:
        yield page.say("nothing pending there")
    if line.relay_jobs:
        yield page.say("%(jobs)s jobs to publish", jobs=figure(line.relay_jobs))
    if line.oldest_seconds is not None:
        yield page.say("oldest %(age)s", age=length(line.oldest_seconds))
    if line.redelivered_messages:
        yield page.say("%(count)s delivered again", count=figure(line.redelivered_messages))
    yield page.say("%(share)s %% of new jobs", share=line.share)
    if line.replicas > 1:
        yield page.say("%(current)s of %(wanted)s replicas", current=line.current_replicas, wanted=line.replicas)


def _advice(page: PageRequest, line: CarrierLine) -> str:
    if line.state == "away":
        return page.say("The carrier does not answer: new jobs run from PostgreSQL.")
    if line.state == "unknown":
        return page.say("No worker reports the carrier. Start one:")
    return page.say("It is empty: you can remove the carrier from the settings.") if line.is_retired else ""
