import os

from shop import app, email

from sereno.channels.contract import Callback
from sereno.errors import RejectedCallback

os.environ |= {"POSTMARK_TOKEN": "token", "POSTMARK_WEBHOOK_PASSWORD": "password"}
# the block of the page

account = app.channels.accounts["email"]
try:
    email.webhook(Callback(body=b"{}", headers={}), account)
except RejectedCallback:
    pass
else:
    raise AssertionError("a callback without the password was accepted")
