"""Fetches each account's books from a partner once a month, at the account's own hour; with other job types besides."""
