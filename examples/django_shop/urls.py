"""Addresses of the project."""

from django.urls import path

from shop.views import add_order, show_order

urlpatterns = [path("orders", add_order), path("orders/<int:number>", show_order)]
