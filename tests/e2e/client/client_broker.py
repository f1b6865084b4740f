"""A broker for clients, on listeners of all dialects that have callers."""

from __future__ import annotations

from programs import DRAGOMAN, Program, Programs

LISTEN = (
    "tcp://127.0.0.1:{port}?max_payload=1MiB",
    "pingpong+tcp://127.0.0.1:0?frontend=0&service=echo",
    "powerhose+tcp://127.0.0.1:0?frontend=0&service=echo",
    "memodb+tcp://127.0.0.1:0",
    "majordomo+tcp://127.0.0.1:0",
    "http://127.0.0.1:0",
)
OTHERS = ["pingpong", "powerhose", "memodb", "majordomo"]


class Broker:
    """A broker process that listens for all dialects with callers."""

    def __init__(self, programs: Programs, port: int = 0) -> None:
        urls = [url.format(port=port) for url in LISTEN]
        self.program: Program = programs.start(DRAGOMAN, "serve", *urls, "--data", "memory", "--strict")
        self.place = {
            name: self.program.prints(rf"{name} +(tcp://\S+) +(?:both|callers)")
            for name in ("native", "pingpong", "powerhose", "memodb", "majordomo")
        }
        self.http = self.program.prints(r"http +(http://\S+)")
        self.url = self.place["native"]
        self.port = int(self.url.rpartition(":")[2])
        self.pingpong = f"pingpong+{self.place['pingpong']}?service=echo"
        self.powerhose = f"powerhose+{self.place['powerhose']}?service=echo"
        self.memodb = f"memodb+{self.place['memodb']}"
        self.majordomo = f"majordomo+{self.place['majordomo']}"
