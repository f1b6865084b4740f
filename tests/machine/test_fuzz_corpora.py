"""Replays the kept inputs of all fuzz targets (fuzz/README.md)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from case_tables import check_every_row
from dragoman.access import principal_file
from dragoman.carriers import curve_keys, http, length_prefix, nats, nats_keys, sp, zmtp, zmtp_curve, zmtp_plain
from dragoman.cluster import direct_batch
from dragoman.dialects.controller import codec as controller
from dragoman.dialects.http import codec as http_dialect
from dragoman.dialects.majordomo import codec as majordomo
from dragoman.dialects.memodb import codec as memodb
from dragoman.dialects.native import codec as native
from dragoman.dialects.pingpong import codec as pingpong
from dragoman.dialects.powerhose import codec as powerhose
from dragoman.http import framing
from dragoman.sdk import address
from dragoman.streams import certificates, tls
from fuzz.targets import CORPUS, TARGETS, kept_inputs, load

MOST_BYTES = 24 * 1024  # of all inputs of a target


def replay(target: str) -> None:
    test_one_input = load(target)
    for path in kept_inputs(target):
        try:
            test_one_input(path.read_bytes())
        except BaseException as error:
            raise AssertionError(f"fuzz/corpus/{target}/{path.name} fails: {error!r}") from error


def test_kept_inputs_pass() -> None:
    check_every_row(replay, [(target,) for target in TARGETS])


def test_every_target_has_a_few_small_inputs() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    sizes = {target: sum(path.stat().st_size for path in kept_inputs(target)) for target in TARGETS}
    assert {target: size for target, size in sizes.items() if not 0 < size <= MOST_BYTES} == {}


# A function deep inside each reader.
REACHED = {
    "zmtp": (zmtp.Zmtp, "_skip_bytes"),
    "zmtp_plain": (zmtp_plain, "_name_and_password"),
    "zmtp_curve": (zmtp_curve.CurveZmtp, "_receive_command"),
    "tls": (tls._Decryptor, "_decrypt"),
    "certificates": (certificates, "_alternative_names"),
    "sp": (sp.Sp, "_update_large"),
    "nats": (nats.Nats, "_update_large"),
    "nats_keys": (nats_keys, "_from_base32"),
    "nats_log": (direct_batch.DirectBatch, "_end_in_order"),
    "length_prefix": (length_prefix.LengthPrefix, "_update_large"),
    "http_client": (http.HttpClient, "_take_trailer"),
    "http_framing": (framing.Chunks, "_begin_chunk"),
    "http_server": (framing.Chunks, "_begin_chunk"),
    "native": (native, "session_field"),
    "memodb": (memodb, "_read_flag"),
    "controller": (controller, "pulse_of"),
    "pingpong": (pingpong, "_shown"),
    "powerhose": (powerhose, "_text"),
    "majordomo": (majordomo, "_expect"),
    "http_dialect": (http_dialect, "packed"),
    "principal_file": (principal_file, "_pattern"),
    "key_files": (curve_keys, "_from_z85"),
    "addresses": (address, "_read_ip"),
}


def test_an_error_deep_inside_a_reader_fails_its_target() -> None:
    """Otherwise the inputs that pass would prove nothing: none of them would get that far, or errors would be lost."""

    def check(target: str) -> None:
        owner, name = REACHED[target]
        load(target)  # some use their reader while they are loaded
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, broken)
            with pytest.raises(AssertionError, match="this reader is broken"):
                replay(target)

    check_every_row(check, [(target,) for target in TARGETS])


def broken(*arguments: object) -> None:
    raise KeyError("this reader is broken")
