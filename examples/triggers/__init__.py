"""Scheduled stored procedures of a dairy: once, at intervals, by cron."""
