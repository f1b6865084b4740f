"""Secrets have no form that shows them."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from hashlib import sha256

import msgspec
import pytest
import structlog

from dragoman.access.secret import Secret

PLAIN = "dgm_correct-horse-battery-staple"
SHOWN = f"secret:{sha256(PLAIN.encode()).hexdigest()[:8]}"


def test_secret_never_prints(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret(PLAIN)
    caplog.set_level(logging.INFO)
    logging.getLogger("a").info("%s %r", secret, [secret])
    forms = [
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret!r:>40}",
        f"{secret!s}{secret!a}",
        "%s %r" % (secret, secret),  # noqa: UP031
        "{} {!r}".format(secret, secret),  # noqa: UP032
        repr({"token": [secret]}),
        json.dumps({"token": secret}),
        msgspec.json.encode({"token": secret}, enc_hook=str).decode(),
        structlog.processors.JSONRenderer()(None, "info", {"token": secret}),
        str(pickle.loads(pickle.dumps(secret))),
        repr(pickle.dumps(secret)),
        "".join(secret),
        secret + "",
        str(ValueError(secret)),
        caplog.text,
    ]
    assert [each for each in forms if PLAIN in each] == []
    assert [each for each in forms if SHOWN not in each] == []
    assert type(pickle.loads(pickle.dumps(secret))) is str
    assert secret.reveal() == PLAIN.encode()


def test_secrets_are_compared_by_value() -> None:
    secret = Secret(PLAIN)
    assert secret == Secret(PLAIN.encode())
    assert hash(secret) == hash(Secret(PLAIN))
    assert secret != Secret("another")
    assert secret != PLAIN
    assert secret != SHOWN
    assert secret not in (SHOWN, PLAIN)
    assert copy.deepcopy([secret])[0] is secret
    assert copy.copy(secret) is secret
