"""Stored procedures of a dairy, called by the clock: once, every so often, by cron."""
