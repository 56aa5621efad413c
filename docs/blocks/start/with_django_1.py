import os
import shutil
import sys
from pathlib import Path

import settings

package = Path("project", "shop")
package.mkdir(parents=True)
shutil.copy("shop.py", package / "tasks.py")
(package / "__init__.py").touch()
(package / "models.py").write_text("""
from django.db import models


class Order(models.Model):
    total = models.IntegerField()
""")
sys.path.insert(0, "project")
settings.INSTALLED_APPS.append("shop")
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"

import django
from django.core.management import call_command

django.setup()
call_command("migrate", run_syncdb=True, verbosity=0)

from sereno.contrib.django.entry import app
from sereno.testing.kit import Kit

# the block of the page

kit = Kit(app)
assert [job.args["args"] for job in kit.jobs("shop.tasks.confirm")] == [[order.pk]]
with transaction.atomic():
    confirm.enqueue(Order.objects.create(total=7).pk)
    transaction.set_rollback(True)
assert Order.objects.count() == 1
assert len(kit.jobs("shop.tasks.confirm")) == 1
kit.drain()
result.refresh()
assert result.return_value == f"order {order.pk} is confirmed"
