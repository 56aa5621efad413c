from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies: ClassVar[list[tuple[str, str]]] = []

    operations: ClassVar[list[migrations.operations.base.Operation]] = [
        migrations.CreateModel(
            name="Return",
            fields=[
                ("job_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("value", models.JSONField()),
                ("stored_at", models.DateTimeField(db_index=True)),
            ],
            options={"db_table": "sereno_django_return", "default_permissions": ()},
        ),
    ]
