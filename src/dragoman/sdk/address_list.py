"""Several addresses of a client or a worker: those of the brokers of one cluster.

They are written as one URL with several hosts, `tcp://a:7400,b:7400?options`, or in Python as a list of URLs, each with
its own options and, if wanted, with several hosts. All have the same dialect.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dragoman.sdk.address import Address, AddressError, address_error, parse_each

MAX_ADDRESSES = 64
Urls = str | Sequence[str]  # one URL, or a list of them


def checked_urls(urls: Urls) -> str | tuple[str, ...]:
    """Return a URL, or a list that cannot change any more. Raises AddressError and TypeError."""
    if isinstance(urls, str):
        return urls
    given: object = urls
    if isinstance(given, bytes | bytearray) or not isinstance(given, Sequence):
        raise TypeError(f"the address is of type {type(urls).__name__}; it must be a URL or a list of URLs")
    for each in given:
        if not isinstance(each, str):
            raise TypeError(f"the list of addresses has an entry of type {type(each).__name__}; each must be a URL")
    if not urls:
        raise AddressError("the list of addresses is empty; write at least one URL, such as tcp://127.0.0.1:7400")
    if not all(urls):
        raise AddressError("an entry of the list of addresses is empty; remove it, or write a URL")
    return tuple(urls)


def first_url(urls: Urls) -> str:
    """Return the URL that an error shows if it concerns all addresses."""
    return urls if isinstance(urls, str) else urls[0]


def as_one_url(urls: Urls) -> str:
    """Return one URL with all hosts, for environment variables. If the URLs of a list differ in more than the host, or
    name Unix sockets, return the first."""
    if isinstance(urls, str):
        return urls
    pieces = [each.partition("://") for each in urls]
    ends = [rest.partition("?") for _, _, rest in pieces]
    is_same = len({(scheme, query) for (scheme, _, _), (_, _, query) in zip(pieces, ends, strict=True)}) == 1
    if not is_same or any("/" in hosts for hosts, _, _ in ends):
        return urls[0]
    (scheme, separator, _), (_, mark, query) = pieces[0], ends[0]
    return f"{scheme}{separator}{','.join(hosts for hosts, _, _ in ends)}{mark}{query}"


def parse_all(urls: Urls, dialects: Collection[str]) -> list[Address]:
    """Parse the addresses of a client or a worker. Raises AddressError."""
    found: list[Address] = []
    for url in [urls] if isinstance(urls, str) else urls:
        for address in parse_each(url, dialects, dials=True):
            if found and address.dialect != found[0].dialect:
                raise address_error(
                    url,
                    f"its dialect is {address.dialect}, and that of the first address is {found[0].dialect}; all "
                    "addresses of a client or a worker have the same dialect",
                )
            found.append(address)
    if len(found) > MAX_ADDRESSES:
        raise address_error(found[0].url, f"{len(found)} addresses; at most {MAX_ADDRESSES} are allowed")
    return found
