"""Reminders with due dates, sent by the channel of each reminder, with fallback channels."""
