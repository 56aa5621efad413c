"""`from django.tasks import task` on Django 6, and from the package on 5.2."""

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

__all__ = ["task"]
