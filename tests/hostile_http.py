"""HTTP requests that must be rejected, each with its status and reason; and odd requests that are valid."""

from __future__ import annotations

from dragoman.http.limits import HttpLimits

LIMITS = HttpLimits(max_payload=1000)

HOST = b"Host: localhost\r\n"
POST = b"POST / HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def get(*fields: bytes, line: bytes = b"GET / HTTP/1.1") -> bytes:
    return b"\r\n".join((line, b"Host: localhost", *fields, b"", b""))


def post(*fields: bytes) -> bytes:
    return get(*fields, line=b"POST / HTTP/1.1")


# name -> request, status, reason
HOSTILE: dict[str, tuple[bytes, int, str]] = {
    # line ends
    "LF alone everywhere": (b"GET / HTTP/1.1\nHost: localhost\n\n", 400, "bare-line-end"),
    "LF alone after the first line": (b"GET / HTTP/1.1\n" + HOST + b"\r\n", 400, "bare-line-end"),
    "LF alone after a field": (b"GET / HTTP/1.1\r\nHost: localhost\nX: 1\r\n\r\n", 400, "bare-line-end"),
    "LF alone at the end": (b"GET / HTTP/1.1\r\nHost: localhost\r\n\n", 400, "bare-line-end"),
    "LF in a value": (get(b"X: a\nContent-Length: 5"), 400, "bare-line-end"),
    "CR in a value": (get(b"X: a\rb"), 400, "bare-line-end"),
    "CR CR LF": (get(b"X: a\r"), 400, "bare-line-end"),
    "CR in a target": (get(line=b"GET /\rx HTTP/1.1"), 400, "bare-line-end"),
    # fields
    "folded with a blank": (get(b"X: a", b" b"), 400, "folded-field"),
    "folded with a tab": (get(b"X: a", b"\tb"), 400, "folded-field"),
    "folded first": (b"GET / HTTP/1.1\r\n Host: localhost\r\n\r\n", 400, "folded-field"),
    "folded length": (post(b"Content-Length:", b" 5") + b"hallo", 400, "folded-field"),
    "blank before the colon": (get(b"X : a"), 400, "malformed-field"),
    "length with a blank before the colon": (post(b"Content-Length : 5") + b"hallo", 400, "malformed-field"),
    "tab before the colon": (get(b"X\t: a"), 400, "malformed-field"),
    "no colon": (get(b"XYZ"), 400, "malformed-field"),
    "no name": (get(b": a"), 400, "malformed-field"),
    "NUL in a value": (get(b"X: a\0b"), 400, "malformed-field"),
    "NUL in a name": (get(b"X\0: a"), 400, "malformed-field"),
    "DEL in a value": (get(b"X: a\x7fb"), 400, "malformed-field"),
    "escape in a value": (get(b"X: \x1b[31m"), 400, "malformed-field"),
    "name that is not ASCII": (get(b"X\xc3\xa9: a"), 400, "malformed-field"),
    "name in brackets": (get(b"X(y): a"), 400, "malformed-field"),
    "65 fields": (get(*(b"X-%d: a" % i for i in range(64))), 431, "too-many-fields"),
    "1000 fields": (get(*(b"X: a" for _ in range(1000))), 431, "too-many-fields"),
    "16 KiB of one field": (get(b"X: " + b"a" * 16_384), 431, "head-too-large"),
    "16 KiB of a name": (get(b"X" * 16_384 + b": a"), 431, "head-too-large"),
    "16 KiB of many fields": (get(*(b"X: " + b"a" * 400 for _ in range(45))), 431, "head-too-large"),
    "a head that never ends": (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 20_000, 431, "head-too-large"),
    # the first line
    "HTTP/0.9": (b"GET /\r\n", 400, "malformed-request-line"),
    "HTTP/0.9 in full": (b"GET / HTTP/0.9\r\n\r\n", 400, "malformed-request-line"),
    "a method that begins with a dash": (get(line=b"-GET / HTTP/1.1"), 400, "malformed-request-line"),
    "HTTP/1.2": (get(line=b"GET / HTTP/1.2"), 400, "malformed-request-line"),
    "HTTP/2.0": (get(line=b"GET / HTTP/2.0"), 400, "malformed-request-line"),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "malformed-request-line"),
    "http in lower case": (get(line=b"GET / http/1.1"), 400, "malformed-request-line"),
    "HTTP/1.1 with a blank after it": (get(line=b"GET / HTTP/1.1 "), 400, "malformed-request-line"),
    "HTTP/01.1": (get(line=b"GET / HTTP/01.1"), 400, "malformed-request-line"),
    "no target": (get(line=b"GET HTTP/1.1"), 400, "malformed-request-line"),
    "two blanks": (get(line=b"GET  / HTTP/1.1"), 400, "malformed-request-line"),
    "a tab between": (get(line=b"GET\t/ HTTP/1.1"), 400, "malformed-request-line"),
    "a blank in the target": (get(line=b"GET /a b HTTP/1.1"), 400, "malformed-request-line"),
    "a blank before the method": (get(line=b" GET / HTTP/1.1"), 400, "malformed-request-line"),
    "a method in lower case": (get(line=b"get / HTTP/1.1"), 400, "malformed-request-line"),
    "a method of 100 letters": (b"A" * 100, 400, "malformed-request-line"),
    "a method that nobody knows": (get(line=b"FROBNICATE / HTTP/1.1"), 400, "malformed-request"),
    "NUL in the target": (get(line=b"GET /\0 HTTP/1.1"), 400, "malformed-request-line"),
    "a target that is not ASCII": (get(line=b"GET /\xc3\xa9 HTTP/1.1"), 400, "malformed-request-line"),
    "a target that is no path": (get(line=b"GET x HTTP/1.1"), 400, "malformed-request"),
    "a star for GET": (get(line=b"GET * HTTP/1.1"), 400, "malformed-request-line"),
    "a URL without a path": (get(line=b"GET http://localhost HTTP/1.1"), 400, "malformed-request"),
    "a target of 4097 bytes": (get(line=b"GET /" + b"a" * 4096 + b" HTTP/1.1"), 414, "target-too-long"),
    "a target that never ends": (b"GET /" + b"a" * 20_000, 414, "target-too-long"),
    "a tunnel": (b"CONNECT localhost:22 HTTP/1.1\r\nHost: localhost:22\r\n\r\n", 501, "tunnel"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "malformed-request-line"),
    "ZMTP": (b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL", 400, "malformed-request-line"),
    "three empty lines": (b"\r\n\r\n\r\n" + get(), 400, "malformed-request-line"),
    # Host and Origin
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", 400, "no-host"),
    "two Hosts": (get(b"Host: localhost"), 400, "repeated-field"),
    "two Hosts, one foreign": (get(b"Host: evil.example"), 400, "repeated-field"),
    "a foreign Host": (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, "foreign-host"),
    "a foreign Host in HTTP/1.0": (b"GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n", 403, "foreign-host"),
    "an empty Host": (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", 403, "foreign-host"),
    "a Host that begins like ours": (b"GET / HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 403, "foreign-host"),
    "a Host that ends like ours": (b"GET / HTTP/1.1\r\nHost: evil.localhost\r\n\r\n", 403, "foreign-host"),
    "a Host with a user": (b"GET / HTTP/1.1\r\nHost: evil@localhost\r\n\r\n", 403, "foreign-host"),
    "a Host with a path": (b"GET / HTTP/1.1\r\nHost: localhost/evil\r\n\r\n", 403, "foreign-host"),
    "a Host list": (b"GET / HTTP/1.1\r\nHost: localhost, evil.example\r\n\r\n", 403, "foreign-host"),
    "a Host with a port that is none": (b"GET / HTTP/1.1\r\nHost: localhost:evil\r\n\r\n", 403, "foreign-host"),
    "another loopback address": (b"GET / HTTP/1.1\r\nHost: 127.0.0.2\r\n\r\n", 403, "foreign-host"),
    "a loopback address in octal": (b"GET / HTTP/1.1\r\nHost: 0177.0.0.1\r\n\r\n", 403, "foreign-host"),
    "a foreign URL": (get(line=b"GET http://evil.example/ HTTP/1.1"), 403, "foreign-host"),
    "a foreign URL with a user": (get(line=b"GET http://localhost@evil.example/ HTTP/1.1"), 400, "secret-in-url"),
    "a URL with a password": (get(line=b"GET http://u:p@localhost/ HTTP/1.1"), 400, "secret-in-url"),
    "a token in the query": (get(line=b"GET /?token=x HTTP/1.1"), 400, "secret-in-url"),
    "a token without a value": (get(line=b"GET /?a=1&access_token HTTP/1.1"), 400, "secret-in-url"),
    "a token under another name": (get(line=b"GET /?q=dgm_x HTTP/1.1"), 400, "secret-in-url"),
    "an encoded token": (get(line=b"GET /?q=%64gm%5Fx HTTP/1.1"), 400, "secret-in-url"),
    "an encoded name of a token": (get(line=b"GET /?To%6Ben=x HTTP/1.1"), 400, "secret-in-url"),
    "two tokens": (get(b"Authorization: Bearer a", b"Authorization: Bearer b"), 400, "repeated-field"),
    "two Cookie fields": (get(b"Cookie: dragoman=a", b"Cookie: dragoman=b"), 400, "repeated-field"),
    "null as Origin": (get(b"Origin: null"), 403, "foreign-origin"),
    "null as Origin of a form": (post(b"Origin: null", b"Content-Length: 0"), 403, "foreign-origin"),
    "a form of another site": (post(b"Sec-Fetch-Site: cross-site", b"Content-Length: 0"), 403, "foreign-origin"),
    "an image of another site": (
        get(b"Sec-Fetch-Site: cross-site", line=b"GET /v1/jobs HTTP/1.1"),
        403,
        "foreign-origin",
    ),
    "a URL without a host": (get(line=b"GET http:///x HTTP/1.1"), 403, "foreign-host"),
    "a foreign Origin": (get(b"Origin: http://evil.example"), 403, "foreign-origin"),
    "another port as Origin": (get(b"Origin: http://localhost:3000"), 403, "foreign-origin"),
    "another of our names as Origin": (get(b"Origin: http://127.0.0.1"), 403, "foreign-origin"),
    "Origin null": (get(b"Origin: null"), 403, "foreign-origin"),
    "an empty Origin": (get(b"Origin:"), 403, "foreign-origin"),
    "an extension's Origin": (get(b"Origin: chrome-extension://localhost"), 403, "foreign-origin"),
    "two Origins": (get(b"Origin: http://localhost", b"Origin: http://evil.example"), 400, "repeated-field"),
    "a foreign preflight": (
        get(b"Origin: http://evil.example", b"Access-Control-Request-Method: POST", line=b"OPTIONS / HTTP/1.1"),
        403,
        "foreign-origin",
    ),
    # lengths
    "two lengths": (post(b"Content-Length: 5", b"Content-Length: 6") + b"hallo!", 400, "repeated-field"),
    "the same length twice": (post(b"Content-Length: 5", b"Content-Length: 5") + b"hallo", 400, "repeated-field"),
    "a list of lengths": (post(b"Content-Length: 5, 5") + b"hallo", 400, "malformed-length"),
    "a length with a plus": (post(b"Content-Length: +5") + b"hallo", 400, "malformed-length"),
    "a negative length": (post(b"Content-Length: -5"), 400, "malformed-length"),
    "a length in hex": (post(b"Content-Length: 0x5") + b"hallo", 400, "malformed-length"),
    "an empty length": (post(b"Content-Length:"), 400, "malformed-length"),
    "a length with an underscore": (post(b"Content-Length: 1_0"), 400, "malformed-length"),
    "a length beyond 64 bits": (post(b"Content-Length: 99999999999999999999999"), 400, "malformed-length"),
    "a length over the limit": (post(b"Content-Length: 1001"), 413, "too-large"),
    "a length far over the limit": (post(b"Content-Length: 1" + b"0" * 17), 413, "too-large"),
    "a length over the limit, and patience": (
        post(b"Content-Length: 1001", b"Expect: 100-continue"),
        413,
        "too-large",
    ),
    "chunks and a length": (post(b"Transfer-Encoding: chunked", b"Content-Length: 5"), 400, "two-lengths"),
    "a length and chunks": (post(b"Content-Length: 5", b"Transfer-Encoding: chunked"), 400, "two-lengths"),
    "chunks twice": (post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), 400, "malformed-coding"),
    "chunks in HTTP/1.0": (
        get(b"Transfer-Encoding: chunked", line=b"POST / HTTP/1.0"),
        400,
        "chunks-in-http-1.0",
    ),
    "gzip, then chunks": (post(b"Transfer-Encoding: gzip, chunked"), 501, "transfer-encoding"),
    "chunks, then something": (post(b"Transfer-Encoding: chunked, x"), 400, "malformed-coding"),
    "identity as transfer encoding": (post(b"Transfer-Encoding: identity"), 400, "malformed-coding"),
    "chunks with a tail": (post(b"Transfer-Encoding: chunked;x"), 400, "malformed-coding"),
    # chunks
    "a chunk size that is none": (CHUNKED + b"xyz\r\n", 400, "malformed-chunk"),
    "a chunk size in 0x": (CHUNKED + b"0x5\r\nhallo\r\n0\r\n\r\n", 400, "malformed-chunk"),
    "a negative chunk size": (CHUNKED + b"-1\r\n", 400, "malformed-chunk"),
    "a blank before a chunk size": (CHUNKED + b" 5\r\nhallo\r\n0\r\n\r\n", 400, "malformed-chunk"),
    "a blank after a chunk size": (CHUNKED + b"5 \r\nhallo\r\n0\r\n\r\n", 400, "malformed-chunk"),
    "an empty chunk size": (CHUNKED + b"\r\n", 400, "malformed-chunk"),
    "a chunk size beyond 32 bits": (CHUNKED + b"100000005\r\nhallo", 400, "malformed-chunk"),
    "a chunk line with LF alone": (CHUNKED + b"5\nhallo\r\n0\r\n\r\n", 400, "malformed-chunk"),
    "a chunk longer than it says": (CHUNKED + b"5\r\nhalloo\r\n0\r\n\r\n", 400, "malformed-chunk"),
    "a chunk that ends with LF alone": (CHUNKED + b"5\r\nhallo\n0\r\n\r\n", 400, "malformed-chunk"),
    "a long chunk extension": (CHUNKED + b"5;" + b"a" * 200 + b"\r\nhallo\r\n0\r\n\r\n", 400, "malformed-chunk"),
    "a NUL in a chunk extension": (CHUNKED + b"5;\0\r\nhallo\r\n0\r\n\r\n", 400, "malformed-chunk"),
    "fields after the body": (CHUNKED + b"5\r\nhallo\r\n0\r\nHost: evil.example\r\n\r\n", 400, "trailers"),
    "a chunk over the limit": (CHUNKED + b"3e9\r\n", 413, "too-large"),
    "chunks over the limit": (CHUNKED + b"1f4\r\n" + b"a" * 500 + b"\r\n1f5\r\n", 413, "too-large"),
    # unsupported encodings of bodies
    "gzip": (post(b"Content-Encoding: gzip", b"Content-Length: 5") + b"hallo", 415, "content-encoding"),
    "gzip in capitals": (post(b"content-encoding: GZIP", b"Content-Length: 5") + b"hallo", 415, "content-encoding"),
    "identity, gzip": (post(b"Content-Encoding: identity, gzip"), 415, "content-encoding"),
    "gzip, and identity": (post(b"Content-Encoding: gzip", b"Content-Encoding: identity"), 400, "repeated-field"),
    "gzip in chunks": (post(b"Content-Encoding: gzip", b"Transfer-Encoding: chunked"), 415, "content-encoding"),
    "a form": (post(b"Content-Type: multipart/form-data; boundary=x", b"Content-Length: 0"), 415, "multipart"),
    "a form in capitals": (post(b"Content-Type: MULTIPART/Form-Data; boundary=x"), 415, "multipart"),
    "two types": (post(b"Content-Type: text/plain", b"Content-Type: multipart/form-data"), 400, "repeated-field"),
}

# name -> request, response of the echo app: method, target as the app sees it, body
RIGHT: dict[str, tuple[bytes, bytes]] = {
    "GET": (get(), b"GET / "),
    "a query": (get(line=b"GET /a/b?c=d&e HTTP/1.1"), b"GET /a/b?c=d&e "),
    "two slashes": (get(line=b"GET //evil.example/x HTTP/1.1"), b"GET //evil.example/x "),
    "a URL of ours": (get(line=b"GET http://127.0.0.1:7480/x?y HTTP/1.1"), b"GET /x?y "),
    "a star": (get(line=b"OPTIONS * HTTP/1.1"), b"OPTIONS * "),
    "a body": (post(b"Content-Length: 5") + b"hallo", b"POST / hallo"),
    "an empty body": (post(b"Content-Length: 0"), b"POST / "),
    "a body at the limit": (post(b"Content-Length: 1000") + b"a" * 1000, b"POST / " + b"a" * 1000),
    "chunks": (CHUNKED + b"5\r\nhallo\r\n1\r\n!\r\n0\r\n\r\n", b"POST / hallo!"),
    "chunks in capitals": (post(b"transfer-encoding: CHUNKED") + b"A\r\n0123456789\r\n0\r\n\r\n", b"POST / 0123456789"),
    "no chunk": (CHUNKED + b"0\r\n\r\n", b"POST / "),
    "a chunk with an extension": (CHUNKED + b"5;a=b\r\nhallo\r\n000\r\n\r\n", b"POST / hallo"),
    "a body like a request": (post(b"Content-Length: 17") + b"GET x HTTP/1.1\r\n.", b"POST / GET x HTTP/1.1\r\n."),
    "an empty line before": (b"\r\n" + get(), b"GET / "),
    "Host with a port": (b"GET / HTTP/1.1\r\nHost: LocalHost:1\r\n\r\n", b"GET / "),
    "Host as IPv6": (b"GET / HTTP/1.1\r\nHost: [::1]:7480\r\n\r\n", b"GET / "),
    "our own Origin": (b"GET / HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:1\r\n\r\n", b"GET / "),
    "a link of another site": (
        get(b"Sec-Fetch-Site: cross-site", line=b"GET /login?x=1 HTTP/1.1"),
        b"GET /login?x=1 ",
    ),
    "a request of a page of ours": (get(b"Sec-Fetch-Site: same-origin", line=b"GET /v1 HTTP/1.1"), b"GET /v1 "),
    "a key and an address in a query": (
        get(line=b"GET /?key=tokens&q=a@b:c&x=_dgm_ HTTP/1.1"),
        b"GET /?key=tokens&q=a@b:c&x=_dgm_ ",
    ),
    "identity": (post(b"Content-Encoding: identity", b"Content-Length: 5") + b"hallo", b"POST / hallo"),
    "a wish for HTTP/2": (
        get(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: A"),
        b"GET / ",
    ),
    "a wish for HTTP/2 with a body": (
        post(b"Connection: upgrade", b"uPGRADE: h2c", b"Content-Length: 5") + b"hallo",
        b"POST / hallo",
    ),
    "a wish for a WebSocket": (get(b"Connection: Upgrade", b"Upgrade: websocket"), b"GET / "),
    "63 more fields": (get(*(b"X-%d: a" % i for i in range(63))), b"GET / "),
    "a target at the limit": (
        get(line=b"GET /" + b"a" * 4095 + b" HTTP/1.1"),
        b"GET /" + b"a" * 4095 + b" ",
    ),
    "bytes over 127 in a value": (get(b"X: \xc3\xa9"), b"GET / "),
}


async def echo(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
    """Return the request: method, target, body."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return
        body += message["body"]
        if not message["more_body"]:
            break
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    said = scope["method"].encode() + b" " + scope["raw_path"] + query + b" " + body
    headers = [(b"content-length", b"%d" % len(said)), (b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": said})
