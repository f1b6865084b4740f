"""The file of one principal: every form that is accepted, and every refusal with its line."""

from __future__ import annotations

import pytest

from case_tables import check_every_row
from dragoman.access.identities import Identity, IdentityKind
from dragoman.access.principal_file import KEYS, MAX_FILE_BYTES, read_principal
from dragoman.access.problems import AccessError
from dragoman.access.tokens import new_token
from dragoman.core.rights import PrincipalLimits, Right, Rights

HEX = "3f" * 32
HASH = f"sha256:{'9b' * 32}"
Z85 = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"  # the server's public key in ZeroMQ's manual
Z85_HEX = "54fcba24e93249969316fb617c872bb0c1d1ff14800427c594cbfacf1bc2d652"
TOKEN = new_token(b"\x07" * 32).reveal().decode()

# name, content, line, part of the problem
REFUSED = [
    ("web", "cal = []", 1, "cal is not a key; did you mean 'call'?"),
    ("web", "call = []\n\nzzz = 1", 3, f"zzz is not a key; allowed are {', '.join(KEYS)}"),
    ("web", "[call]\n", 1, "call must be a list; write call = [ … ], with brackets"),
    ("web", "[limits]\nmax_rate = 1", 1, "limits is a table; the file of a principal has no tables"),
    ("web", 'call = "resize"', 1, "call must be a list"),
    ("web", '# a comment\ncall = [\n  "resize",\n  "a*b",\n]', 4, "pattern 'a*b' has a '*' before its last character"),
    ("web", 'work = [""]', 1, "not 1 to 128 bytes"),
    ("web", 'see = ["a\\nb"]', 1, "of visible text"),
    ("web", "see = [1]", 1, "see has the entry 1; write the name of a service in quotes"),
    ("web", 'administer = ["a", "a"]', 1, "administer has the same entry twice"),
    ("web", 'call = ["a"]\ncall = ["b"]', 2, "is not TOML: Cannot overwrite a value"),
    ("web", "call = [\n", 2, "is not TOML"),
    ("web", 'call = ["a"] b', 1, "is not TOML"),
    ("web", "a = " + "[" * 10_000, None, "is not TOML: it is nested too deeply"),
    ("web", b"# \xff", 1, "is not UTF-8; save it as UTF-8"),
    ("web", b"\n\ncall = ['\xe4']", 3, "is not UTF-8"),
    ("web", "#" * (MAX_FILE_BYTES + 1), None, f"has more than {MAX_FILE_BYTES} bytes"),
    ("web", f'token = ["{HASH[:-1]}"]', 1, "token has an entry that is not a hash; write 'sha256:' and 64 hex digits"),
    ("web", 'token = ["md5:00"]', 1, "token has an entry that is not a hash"),
    ("web", f'\ntoken = ["{TOKEN}"]', 2, "token has a token itself. A file has only the hash of a token"),
    ("web", f'tls_key = ["{HEX}"]', 1, "tls_key has an entry that is not a hash"),
    ("web", "tls_key = [1]", 1, "tls_key has an entry that is not a hash"),
    ("web", f'curve = ["{HEX[1:]}"]', 1, "curve has an entry that is not a public key; write 64 hex digits"),
    ("web", f'curve = ["{"#" * 40}"]', 1, "curve has an entry that is not a public key"),
    ("web", "curve = [12]", 1, "curve has an entry that is not a public key"),
    ("web", f'curve = ["{HEX}", "{HEX.upper()}"]', 1, "curve has the same entry twice"),
    ("web", f'curve = [\n"{Z85}",\n"{Z85_HEX}"]', 3, "curve has the same entry twice"),
    ("web", 'tls_name = ["*.example.org"]', 1, "without '*'"),
    ("web", 'tls_name = [""]', 1, "tls_name has the entry ''"),
    ("web", f'tls_name = ["{"a" * 256}"]', 1, "1 to 255 printable characters"),
    ("web", "tls_name = [7]", 1, "tls_name has the entry 7"),
    ("web", 'uid = ["33"]', 1, "uid has the entry '33'; write a number from 0 to 4294967294, without quotes"),
    ("web", "uid = [true]", 1, "uid has the entry True"),
    ("web", "uid = [-1]", 1, "uid has the entry -1"),
    ("web", "gid = [4294967295]", 1, "gid has the entry 4294967295"),
    ("web", "gid = [65534]", 1, "gid has the entry 65534, which the kernel reports for every user or group"),
    ("web", "uid = 33", 1, "uid must be a list; write uid = [ … ], with brackets"),
    ("web", "max_waiting = 0", 1, "max_waiting is 0; write a whole number, at least 1, or remove the line"),
    ("web", "max_waiting = 1.5", 1, "max_waiting is 1.5"),
    ("web", 'max_waiting = "1MiB"', 1, "max_waiting is '1MiB'"),
    ("web", "max_running = true", 1, "max_running is True"),
    ("web", "max_peers = -1", 1, "max_peers is -1"),
    ("web", "max_payload = 9223372036854775808", 1, "max_payload is 9223372036854775808"),
    ("web", 'max_waiting_bytes = "1 MB"', 1, 'or a size such as "64MiB"'),
    ("web", f"max_running = {'9' * 5000}", None, "has a number of thousands of digits; write a smaller one"),
    ("web", f"max_running = 0x{'f' * 5000}", None, "has a number of thousands of digits"),
    ("web", f"uid = [0x{'f' * 5000}]", None, "has a number of thousands of digits"),
    ("web", "max_rate = 0", 1, "max_rate is 0; write a number above 0"),
    ("web", "max_rate = nan", 1, "max_rate is nan"),
    ("web", "max_rate = inf", 1, "max_rate is inf"),
    ("web", 'max_rate = "5"', 1, "max_rate is '5'"),
    ("web", 'expires = "2027-01-01"', 1, "expires is not a moment; write a date such as 2027-01-01 (midnight UTC)"),
    ("web", "expires = 2027-01-01T00:00:00", 1, "a time with its zone"),
    ("web", "expires = 12:00:00", 1, "expires is not a moment"),
    ("anyone", "call = []\nuid = [33]", 2, "uid identifies peers; 'anyone' is every peer without an identity"),
    ("local", "", None, "'local' is built in"),
    ("Web", "", None, "'Web' is not the name of a principal: write 1 to 64 of a-z, 0-9, '.', '_' and '-'"),
    ("-web", "", None, "beginning with a letter or digit"),
    ("a" * 65, "", None, "is not the name of a principal"),
    ("wéb", "", None, "is not the name of a principal"),
    ("a b", "", None, "is not the name of a principal"),
    ("web\n", "", None, "is not the name of a principal"),
    ("", "", None, "is not the name of a principal"),
]


def test_every_refusal_names_file_line_and_correction() -> None:
    def check(name: str, content: str | bytes, line: int | None, problem: str) -> None:
        raw = content.encode() if isinstance(content, str) else content
        with pytest.raises(AccessError) as caught:
            read_principal(name, raw, f"access/{name}.toml")
        (found,) = caught.value.problems
        assert problem in found.text
        assert (found.file, found.line) == (f"access/{name}.toml", line)
        where = f"access/{name}.toml" if line is None else f"access/{name}.toml, line {line}"
        assert str(caught.value).startswith(f"{where}: ")

    check_every_row(check, REFUSED)


def test_all_problems_of_a_file_are_found() -> None:
    content = b'cal = []\nuid = ["a"]\nmax_rate = 0\nwork = ["**", "fine", "*a"]\nexpires = 1\n'
    with pytest.raises(AccessError) as caught:
        read_principal("web", content, "web.toml")
    assert sorted(each.line or 0 for each in caught.value.problems) == [1, 2, 3, 4, 4, 5]
    assert str(caught.value).endswith("(and 5 more: `dragoman access check` lists all)")


def test_a_token_in_a_file_is_never_repeated() -> None:
    for content in (f'token = ["{TOKEN}"]', f'token = ["x{TOKEN}"]', f'token = "{TOKEN}"', f'curve = ["{TOKEN}"]'):
        with pytest.raises(AccessError) as caught:
            read_principal("web", content.encode(), "web.toml")
        assert TOKEN not in str(caught.value)


def test_every_key_is_read() -> None:
    content = f"""
curve = ["{HEX}", '{Z85}']
tls_key = ["{HASH}"]
tls_name = ["ops.example.org", "spiffe://example.org/ops"]
token = ["{HASH.replace("9b", "9C")}"]
uid = [0, 33]
gid = [1001]
call = ["*"]
work = ["resize", "mail.*"]
see = []
administer = ["a"]
max_waiting = 1
max_waiting_bytes = "64MiB"
max_running = 2
max_payload = 1_000
max_rate = 3
max_peers = 4
expires = 2027-01-01
"""
    found = read_principal("ops", content.encode(), "access/ops.toml")
    assert found.name == "ops"
    assert found.file == "access/ops.toml"
    assert found.rights == Rights(call=["*"], work=["resize", "mail.*"], administer=["a"])
    assert found.limits == PrincipalLimits(1, 64 << 20, 2, 1_000, 3.0, 4)
    assert type(found.limits.max_rate) is float
    assert found.identities == (
        Identity(IdentityKind.CURVE, bytes.fromhex(HEX)),
        Identity(IdentityKind.CURVE, bytes.fromhex(Z85_HEX)),
        Identity(IdentityKind.TLS_KEY, b"\x9b" * 32),
        Identity(IdentityKind.TLS_NAME, "ops.example.org"),
        Identity(IdentityKind.TLS_NAME, "spiffe://example.org/ops"),
        Identity(IdentityKind.TOKEN, b"\x9c" * 32),
        Identity(IdentityKind.UID, 0),
        Identity(IdentityKind.UID, 33),
        Identity(IdentityKind.GID, 1001),
    )
    assert [each.label for each in found.identities][::4] == ["3f" * 4, "spiffe://example.org/ops", "1001"]
    assert found.expires == 1_798_761_600.0
    assert (found.is_valid(1_798_761_599.9), found.is_valid(1_798_761_600.0)) == (True, False)


LIMITS_FIRST = f"""expires = 2020-01-01T00:00:00Z
max_waiting = 1000
max_rate = 12.5
max_payload = "64MiB"
call = ["resize", "mail.*"]
work = ["crop"]
administer = ['*']
token = ["{HASH}"]
uid = [33, 1001]
tls_name = ["ops.example.org"]
"""


def test_a_half_written_file_never_opens_a_door() -> None:
    """Cut at every byte, it is refused, or gives nothing that the whole does not give. Limits before identities are
    never lost."""
    whole = read_principal("web", LIMITS_FIRST.encode(), "web.toml")
    read = 0
    for size in range(len(LIMITS_FIRST)):
        try:
            part = read_principal("web", LIMITS_FIRST.encode()[:size], "web.toml")
        except AccessError:
            continue
        read += 1
        assert set(part.identities) <= set(whole.identities)
        for right in Right:
            assert set(part.rights.patterns(right)) <= set(whole.rights.patterns(right))
        if part.identities:
            assert (part.limits, part.expires) == (whole.limits, whole.expires)
    assert read >= LIMITS_FIRST.count("\n")


def test_an_empty_file_is_a_principal_without_identities_and_rights() -> None:
    found = read_principal("web", b"", "web.toml")
    assert (found.identities, found.rights, found.limits) == ((), Rights(), PrincipalLimits())


def test_a_moment_with_its_zone_is_an_expiry() -> None:
    found = read_principal("web", b"expires = 2027-01-01T02:00:00+01:00", "web.toml")
    assert found.expires == 1_798_761_600.0 + 3_600


def test_anyone_may_have_rights_and_limits() -> None:
    assert read_principal("anyone", b'call = ["public"]\nmax_rate = 0.5', "anyone.toml").limits.max_rate == 0.5
