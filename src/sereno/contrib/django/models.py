"""The table of return values. Everything else about a job is in sereno's own schema."""

from typing import ClassVar

from django.db import models


class Return(models.Model):
    """The return value of a task that has succeeded; a task that returned None has no row."""

    job_id = models.BigIntegerField(primary_key=True)
    value = models.JSONField()
    stored_at = models.DateTimeField(db_index=True)

    class Meta:
        """The table name is also used by the statements in `running`."""

        db_table = "sereno_django_return"
        default_permissions: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return f"return value of job {self.job_id}"
