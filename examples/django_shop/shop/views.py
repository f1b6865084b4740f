"""Views of the application."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from dragoman.integrations.django import on_commit

from shop.models import Order
from shop.tasks import pack


@csrf_exempt
def add_order(request: HttpRequest) -> JsonResponse:
    """Store an order, and enqueue its job if and when the transaction is committed."""
    with transaction.atomic():
        order = Order.objects.create(name=request.POST["name"])
        on_commit(pack.enqueue, order.id)
        if len(order.name) > 50:
            transaction.set_rollback(True)  # there is no order, and no job
            return JsonResponse({"error": "the name is too long"}, status=400)
    return JsonResponse({"number": order.id}, status=201)


def show_order(request: HttpRequest, number: int) -> JsonResponse:
    order = get_object_or_404(Order, id=number)
    return JsonResponse({"name": order.name, "is_packed": order.is_packed})
