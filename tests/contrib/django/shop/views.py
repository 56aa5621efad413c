from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse

from .models import Order
from .tasks import add_up


def buy(request: HttpRequest) -> HttpResponse:
    """Write an order and its job in one transaction."""
    with transaction.atomic():
        order = Order.objects.create(total=42)
        result = add_up.enqueue(order.pk)
        if "regret" in request.GET:
            transaction.set_rollback(True)
    return JsonResponse({"order": order.pk, "job": result.id})
