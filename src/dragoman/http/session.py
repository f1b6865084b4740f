"""Callers and workers that speak HTTP."""

from __future__ import annotations


class HttpSession:
    dialect = "http"
