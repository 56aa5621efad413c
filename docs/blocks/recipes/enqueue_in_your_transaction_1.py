import os

import django
from django.conf import settings
from django.db import models
from psycopg.conninfo import conninfo_to_dict

place = conninfo_to_dict(os.environ["SERENO_DATABASE_URL"])
database = {"NAME": place["dbname"], "USER": place["user"], "HOST": place["host"]}
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **database}})
django.setup()


class Order(models.Model):
    id = models.BigAutoField(primary_key=True)
    total = models.IntegerField()

    class Meta:
        app_label = "shop"
        db_table = "orders"


# the block of the page

with connection.cursor() as cursor:
    made = "select count(*) from sereno.jobs where task = 'confirm' and (args->>'order')::bigint = %s"
    with transaction.atomic():
        taken_back = Order.objects.create(total=42)
        confirm.using(connection).enqueue(taken_back.id)
        transaction.set_rollback(True)
    for number, there in ((order.id, 1), (taken_back.id, 0)):
        cursor.execute(made, [number])
        assert cursor.fetchone() == (there,)
