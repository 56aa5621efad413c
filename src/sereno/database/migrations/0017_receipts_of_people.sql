-- What recipients did with a message: receipts of clicks, complaints and unsubscriptions.

comment on column sereno.receipts_v1.outcome is
    'delivered, read, clicked, complained, unsubscribed, bounced, failed, invalid, retry, down';
