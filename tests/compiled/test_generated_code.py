"""The C that is made of the hot path: in these functions nearly every call is direct, and no name is looked up.

A protocol, `Any` or a callable where a class could stand is a call by name or through an object; a constant that is not
`Final` is looked up in a dictionary each time. No timing shows one of them, and together they were half of the work of
a job. If a figure must rise, raise it here and say why in the commit.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from product import Product

from case_tables import check_every_row


class Slow(NamedTuple):
    """Places in a function that compiled code is slow at."""

    methods: int = 0  # methods called by name
    objects: int = 0  # callables called
    attributes: int = 0  # attributes read by name
    names: int = 0  # names of the module looked up


HOT = {
    "core.broker:Broker.submit": Slow(attributes=4),  # where it turns a job away
    "core.broker:Broker.succeed": Slow(),
    "core.dispatch:Dispatch.queue": Slow(objects=1, attributes=1),  # where its time is over already
    "core.dispatch:Dispatch.give": Slow(),
    "core.dispatch:Dispatch.freed": Slow(),
    "core.job_registry:JobRegistry.admit": Slow(),
    "core.job_registry:JobRegistry.end": Slow(),
    "core.worker_registry:WorkerRegistry.pick": Slow(),
    "core.worker_registry:WorkerRegistry.take_slot": Slow(),
    "core.worker_registry:WorkerRegistry.settle": Slow(),
    "core.idle:IdleList.append": Slow(),
    "core.idle:IdleList.move_to_end": Slow(),
    "core.idle:IdleList.remove": Slow(),
    "server.runner:Runner._drain_effects": Slow(methods=1, objects=1, attributes=2, names=2),  # diary, strict, raised
    # clock, wake, and the clock again while undecoded bytes wait for a turn; failures
    "server.connections:Connections.arrived": Slow(objects=3, attributes=5),
    "server.connections:Connections._receive": Slow(objects=1, attributes=1, names=2),  # strict; what was raised
    "server.connections:Connections.send": Slow(),
    # what sessions do at the end of a turn; the limit of a connection with too many unsent bytes
    "server.connections:Connections.write": Slow(objects=1, attributes=1),
    "dialects.native.broker_side:NativeBrokerSide.receive": Slow(methods=2, objects=4),  # other messages than jobs
    "dialects.native.broker_side:NativeBrokerSide.execute": Slow(attributes=1),
    "dialects.pingpong.broker_side:PingPongBrokerSide.receive": Slow(attributes=2),  # what is not as it should be
    "dialects.pingpong.broker_side:PingPongBrokerSide.execute": Slow(),
    "carriers.zmtp:Zmtp.feed": Slow(methods=1),
    "carriers.zmtp:Zmtp.encode": Slow(),
}


def slow_places(code: str, name: str) -> Slow:
    """The slow places of one function."""
    owner, function = name.split(":")[1].split(".")
    head = rf"^\S.*\bCPyDef_\w*{owner}___{function}\([^;]*?\) ?\{{\n"
    found = re.search(head + r"(.*?)^\}", code, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no function {name} any more: name the one that took its place"
    body = found.group(1)
    return Slow(
        methods=body.count("PyObject_VectorcallMethod"),
        objects=body.count("PyObject_Vectorcall("),
        attributes=body.count("CPyObject_GetAttr("),
        names=len(re.findall(r"= CPyStatic_\w+___globals;", body)),
    )


@pytest.mark.timeout(600)
def test_hot_functions_call_directly_and_look_nothing_up(product: Product) -> None:
    def check(name: str, most: Slow) -> None:
        module = name.split(":")[0].replace(".", "___")
        places = slow_places((product.generated / f"__native_dragoman___{module}.c").read_text(), name)
        assert all(count <= bound for count, bound in zip(places, most, strict=True)), f"{places}, at most {most}"

    check_every_row(check, list(HOT.items()))
