"""Requests to AWS are signed as botocore signs them."""

from datetime import UTC, datetime

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from sereno.channels.aws_signature import AwsCredentials, signed_headers

CASES = [
    ("https://email.eu-west-1.amazonaws.com/v2/email/outbound-emails", b'{"a": "ol\xc3\xa1"}', ""),
    ("https://email.eu-west-1.amazonaws.com/v2/email/outbound-emails", b"", "session/token+1=="),
    ("http://127.0.0.1:4566/v2/email/outbound-emails", b"{}", ""),
    ("https://email.cn-north-1.amazonaws.com.cn", b"{}", ""),
]


def test_a_request_is_signed_as_botocore_does(subtests: pytest.Subtests) -> None:
    for url, body, token in CASES:
        with subtests.test(url=url, token=token):
            theirs = AWSRequest("POST", url, headers={"Content-Type": "application/json"}, data=body)
            SigV4Auth(Credentials("AKID", "secret/key+1", token or None), "ses", "eu-west-1").add_auth(theirs)
            at = datetime.strptime(theirs.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
            credentials = AwsCredentials(
                access_key_id="AKID",
                secret_access_key="secret/key+1",  # noqa: S106 - of this test
                session_token=token,
                region="eu-west-1",
                service="ses",
            )
            ours = signed_headers(credentials, "POST", url, {"Content-Type": "application/json"}, body, at)
            assert ours["Authorization"] == theirs.headers["Authorization"]
            assert "secret" not in repr(credentials)
