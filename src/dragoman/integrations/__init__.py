"""Integrations with web frameworks and services for errors. Each needs the package that it is named after."""
