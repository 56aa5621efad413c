"""Reports about emails that a mail gateway forwards to the webhook: which email each is about, and its receipt."""

from collections.abc import Sequence

from sereno.channels.contract import Callback
from sereno.channels.email_content import mailbox
from sereno.channels.email_reports import EmailReport, read_report, receipts
from sereno.channels.outcome import Receipt
from sereno.channels.return_path import ReturnPath

# The address to which the report was sent, which its headers may not have.
RECIPIENT = "x-sereno-recipient"


def report_receipts(callback: Callback, path: ReturnPath | None, sender: str) -> Sequence[Receipt]:
    """Return the receipt of a report; none for any other email, such as an automatic reply."""
    report = read_report(callback.body)
    name = None if report is None else _message_id(report, path, callback.headers.get(RECIPIENT, ""), sender)
    if report is None or name is None:
        return ()
    # An email has one address, but a mailing list reports several recipients; a failure counts before a success.
    return sorted(receipts(report, name), key=lambda receipt: receipt.outcome == "delivered")[:1]


def _message_id(report: EmailReport, path: ReturnPath | None, recipient: str, sender: str) -> str | None:
    """Return the Message-ID of the email that a report is about; None for an email that is not ours.

    With a return path only its signature counts for bounces. Complaints arrive at another address, and often without
    the return path of the email: they are found by its Message-ID too, which cannot be guessed either.
    """
    written = report.message_id
    if path is None:
        return written
    digest = path.digest((recipient, *report.senders()))
    if digest is None:
        return written if report.complaint else None
    # The sender of the account may have changed since.
    is_same = written is not None and written.startswith(f"{digest}@")
    return written if is_same else f"{digest}@{mailbox(sender).address.rpartition('@')[2]}"
