"""Migrations of the application."""
