"""HTTP for Dragoman's own clients and workers; the broker's side is in `dragoman.http`."""
