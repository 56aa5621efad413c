"""The table of orders."""

from django.db import models


class Order(models.Model):
    """An order of the shop."""

    total = models.IntegerField()

    class Meta:
        """The same app label wherever the model is imported from."""

        app_label = "shop"

    def __str__(self) -> str:
        return f"order {self.pk}"
