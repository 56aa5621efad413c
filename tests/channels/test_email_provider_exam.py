"""Channels of e-mail providers pass the conformance tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sereno.channels.contract import Exchange
from sereno.channels.mailgun import Mailgun
from sereno.channels.postmark import Postmark
from sereno.channels.resend import Resend, ResendBatch
from sereno.channels.sendgrid import SendGrid
from sereno.channels.ses import SES
from sereno.testing.channel_exam import ChannelExam, Subject
from sereno.testing.mailgun import MailgunProvider
from sereno.testing.postmark import PostmarkProvider
from sereno.testing.resend import ResendProvider
from sereno.testing.sendgrid import SendGridProvider
from sereno.testing.ses import SESProvider
from tests.channels.test_channel_exam import messages

emails = messages("alice@example.org")


class TestPostmark(ChannelExam):
    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with PostmarkProvider() as provider, Exchange(provider.account) as exchange:
            yield Subject(Postmark(), provider, exchange, emails)


@pytest.mark.slow
class TestSendGrid(ChannelExam):
    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with SendGridProvider() as provider, Exchange(provider.account) as exchange:
            yield Subject(SendGrid(), provider, exchange, emails)


class TestResend(ChannelExam):
    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with ResendProvider() as provider, Exchange(provider.account) as exchange:
            yield Subject(Resend(), provider, exchange, emails)


@pytest.mark.slow
class TestResendBatch(ChannelExam):
    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with ResendProvider() as provider, Exchange(provider.account) as exchange:
            yield Subject(ResendBatch(), provider, exchange, emails)


@pytest.mark.slow
class TestMailgun(ChannelExam):
    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        # Ids of messages contain the domain. It is no secret, and so short that it does not count as one.
        async with MailgunProvider() as provider:
            provider.domain = "mg.test"
            async with Exchange(provider.account) as exchange:
                yield Subject(Mailgun(), provider, exchange, emails)


@pytest.mark.slow
class TestSES(ChannelExam):
    @asynccontextmanager
    async def setup(self) -> AsyncIterator[Subject]:
        async with SESProvider() as provider, Exchange(provider.account) as exchange:
            yield Subject(SES(sns_url=provider.url), provider, exchange, emails)
