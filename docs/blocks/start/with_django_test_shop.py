# the block of the page


from asgi import application
from django.contrib.auth.models import User
from django.test import Client, override_settings
from starlette.testclient import TestClient

urlpatterns = []


def test_the_dashboard_is_for_staff(kit):
    site = TestClient(application, follow_redirects=False)
    assert site.get("/sereno/api/v1/me").status_code == 401
    with override_settings(ROOT_URLCONF=__name__):
        led = site.get("/sereno/jobs", headers={"accept": "text/html"})
    assert led.headers["location"] == "/accounts/login/?next=/sereno/jobs"
    staff = User.objects.create_user("ann", is_staff=True)
    for person, role in ((staff, "viewer"), (User.objects.create_superuser("root"), "admin")):
        django_client = Client()
        django_client.force_login(person)
        site.cookies.set("sessionid", django_client.cookies["sessionid"].value)
        assert site.get("/sereno/api/v1/me").json()["role"] == role
