"""Databases in which procedures are called: by a login of their own, never by the worker's."""
