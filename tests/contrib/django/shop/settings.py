"""A small Django project on the database that `SHOP_DATABASE` names."""

import os

from psycopg.conninfo import conninfo_to_dict

_place = conninfo_to_dict(os.environ["SHOP_DATABASE"])

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _place["dbname"],
        "USER": _place["user"],
        "HOST": _place["host"],
        "PORT": str(_place.get("port", "")),
    }
}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "sereno.contrib.django",
    f"{__package__}",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
TASKS = {
    "default": {
        "BACKEND": "sereno.contrib.django.backend.SerenoBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"retry": 1, "timeout": "1m"},
    }
}
SERENO = {"service": "shop"}
ROOT_URLCONF = f"{__package__}.urls"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
SECRET_KEY = "only for tests"  # noqa: S105 - for tests
ALLOWED_HOSTS = ["127.0.0.1"]
STATIC_URL = "static/"
USE_TZ = True
