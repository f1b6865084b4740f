"""Settings of the project. DRAGOMAN has the address of the broker."""

from pathlib import Path

SECRET_KEY = "only for this example"  # noqa: S105
DEBUG = True
ROOT_URLCONF = "urls"
INSTALLED_APPS = ["dragoman.integrations.django", "shop"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": Path(__file__).with_name("shop.sqlite3"),
        "OPTIONS": {"timeout": 20},  # worker and server write to the same file
    }
}
DRAGOMAN = {"URL": "tcp://127.0.0.1:7400"}
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
