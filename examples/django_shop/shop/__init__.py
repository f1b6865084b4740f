"""The application: orders, and the task that packs them."""
