"""One table."""

from django.db import models


class Order(models.Model):
    """What somebody bought."""

    total = models.IntegerField()

    class Meta:
        """Under the same label wherever it is imported from."""

        app_label = "shop"

    def __str__(self) -> str:
        return f"order {self.pk}"
