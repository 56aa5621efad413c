"""Databases in which procedures are called, with a login of their own, never the worker's."""
