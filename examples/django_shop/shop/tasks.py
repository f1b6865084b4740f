"""Tasks of the application. `manage.py runworker` finds them."""

from dragoman import task

from shop.models import Order


@task
def pack(number: int) -> str:
    """The order is there: the job is enqueued after the commit."""
    order = Order.objects.get(id=number)
    order.is_packed = True
    order.save()
    return str(order.name)
