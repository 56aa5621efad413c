from django.apps import AppConfig


class ShopConfig(AppConfig):
    """A shop."""

    name = __package__
    label = "shop"
    default_auto_field = "django.db.models.BigAutoField"
