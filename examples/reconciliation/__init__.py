"""Each account's books, fetched from a partner once a month at the account's own hour; other jobs beside it."""
