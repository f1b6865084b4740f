"""The listener of Worker-Controller."""

from __future__ import annotations

import os
from functools import partial

from dragoman.carriers.length_prefix import LengthPrefix
from dragoman.carriers.length_prefix import LengthPrefixLimits as PrefixedLimits
from dragoman.dialects.controller import broker_side as controller
from dragoman.dialects.controller.codec import extra_of_pulse, extra_of_response, write_pulse_response
from dragoman.dialects.controller.editions import EDITIONS, SEED
from dragoman.dialects.controller.messages import ControllerError
from dragoman.dialects.controller.options import ListenerOptions as ControllerOptions
from dragoman.sdk.address import UnixAddress, address_error
from dragoman.server.controller_folder import ControllerFolder
from dragoman.server.listener_socket import ListenerSocket
from dragoman.server.wiring import Listener, ListenRequest, check_service


def listen_controller(request: ListenRequest) -> Listener:
    address = request.address
    own: ControllerOptions = request.own
    check_service(request, own.service)
    if request.options.frontend is not None:
        raise address_error(address.url, "controller has no frontend: callers use another dialect")
    if not isinstance(address.place, UnixAddress):
        raise address_error(address.url, "controller needs a folder for Unix sockets: write controller+unix:///PATH")
    try:
        uids = [int(each) for each in own.uid_allow.split(",") if each] or [os.getuid(), 0]
        mode = int(own.mode or "700", 8)
    except ValueError:
        raise address_error(address.url, "uid_allow is a list of numbers, mode an octal number") from None
    if not 0 <= mode <= 0o777 or min(uids) < 0:
        raise address_error(address.url, "uid_allow is a list of user ids, mode an octal number up to 777")
    folder = ControllerFolder(address.place.path, mode, uids)
    fixed = EDITIONS[own.edition.value] if own.edition is not None else SEED
    refusal = write_pulse_response(ControllerError.FAILED, fixed)
    limits = PrefixedLimits(max_payload=request.options.max_payload)
    first_id, context = request.broker.worker_registry.next_id(), request.context
    is_stored = context is not None and context.operations.durability() != "memory"
    session = controller.ControllerBrokerSide(
        request.broker,
        request.runner.connections,
        own,
        [f"uid {uid}" for uid in uids],
        first_id,
        request.taps.reach(folder.reach),
        partial(LengthPrefix, extra_of_response, single=True, limits=limits),
        last_task=first_id - 1 if is_stored else 0,
    )
    request.runner.sessions.append(session)
    carrier = partial(LengthPrefix, extra_of_pulse, single=True, refusal=refusal)
    listener_socket = ListenerSocket(
        session, controller.PULSES, folder.main, carrier, request.limits, is_for_peers=False
    )
    edition = own.edition.value if own.edition is not None else "set by each worker"
    notes = (f"service {own.service!r}, edition {edition}",)
    return Listener(address, (("workers", listener_socket),), notes, folder.prepare, folder.clear)
