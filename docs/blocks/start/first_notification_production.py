import os

from sereno.channels.email import Email

os.environ["SMTP_PASSWORD"] = "secret"
# the block of the page
