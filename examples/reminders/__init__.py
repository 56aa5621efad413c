"""Reminders with due dates, told by the channel that each asks for, and by another where that one fails."""
