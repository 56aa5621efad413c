"""Deletes return values that are older than the retention of the job history."""

from datetime import timedelta
from typing import TypedDict

from django.db import close_old_connections
from django.utils import timezone

from sereno.contrib.django.models import Return
from sereno.contrib.django.project import app
from sereno.schedules.rules.when import Every


class DeletedCounts(TypedDict):
    """The number of deleted return values."""

    deleted: int


@app.cycle(Every("1h"))
@app.task(name="sereno.django.delete_old_results")
def delete_old_results() -> DeletedCounts:
    """Delete return values past their retention."""
    old = timezone.now() - timedelta(days=app.settings.keep_history_days)
    close_old_connections()
    try:
        deleted, _ = Return.objects.using(app.alias).filter(stored_at__lt=old).delete()
    finally:
        close_old_connections()
    return {"deleted": deleted}
