"""Error trackers send the reprs of local variables: those of keys and tokens show nothing."""

from sereno.channels import apns, google_token
from sereno.channels.aws_signature import AwsCredentials
from sereno.channels.web_push import PreparedPush, PushToken

AWS_KEY = ("access_key_id", "secret_access_key", "session_token")


def test_keys_and_tokens_are_not_shown() -> None:
    token = PushToken(0, "vapid t=canary")
    for each in (
        apns._Account("canary", "canary"),
        google_token._Account(google_token.AccessToken("canary", 0)),
        AwsCredentials(region="", service="", **dict.fromkeys(AWS_KEY, "canary")),
        token,
        PreparedPush("https://push.example/canary", b"canary", {"authorization": "vapid t=canary"}, token, True),
    ):
        assert "canary" not in repr([each])
