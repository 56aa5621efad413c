"""For Django 5.2 and 6: `INSTALLED_APPS += ["sereno.contrib.django"]`."""
