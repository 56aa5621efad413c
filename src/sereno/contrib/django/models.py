"""What tasks returned. Everything else of a job is in sereno's own schema."""

from typing import ClassVar

from django.db import models


class Return(models.Model):
    """The return value of a task that has succeeded; a task that returned None has no row."""

    job_id = models.BigIntegerField(primary_key=True)
    value = models.JSONField()
    kept_at = models.DateTimeField(db_index=True)

    class Meta:
        """As the statement in `running` knows it."""

        db_table = "sereno_django_return"
        default_permissions: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return f"what job {self.job_id} returned"
