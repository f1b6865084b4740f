"""A Django project whose orders are packed by a worker.

    pip install "dragoman[django]"
    python manage.py migrate
    python manage.py runworker --threads 2
    python manage.py runserver --noreload
    curl --data "name=tea" http://127.0.0.1:8000/orders
    curl http://127.0.0.1:8000/orders/1

Run worker and server in two terminals. The last command prints {"name": "tea", "is_packed": true}.
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
    execute_from_command_line(sys.argv)
