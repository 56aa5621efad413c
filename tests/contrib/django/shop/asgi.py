from django.core.asgi import get_asgi_application

from sereno.contrib.django.asgi import with_dashboard

application = with_dashboard(get_asgi_application(), "/tools/sereno", staff="operator")
