"""HTTP, as our own clients and workers speak it; the broker's side is in `dragoman.http`."""
