"""Identification of connections: finds the owner of a new one, and turns away those that nobody may use."""

from __future__ import annotations

from typing import Final, final

from dragoman.core.broker import Broker
from dragoman.core.owners import Owner
from dragoman.core.rights import Principal
from dragoman.server.authentication import Admitted, Rejected
from dragoman.server.connection import StreamConnection
from dragoman.server.connection_registry import ConnectionRegistry

NOBODY: Final = Admitted(Principal("nobody"))  # a user without rights


@final
class Identification:
    """Sets the owner of connections: by the local user when it connects, and by its credentials when it opens."""

    def __init__(self, broker: Broker, registry: ConnectionRegistry) -> None:
        self._principals = broker.principals
        self._owners = broker.owners
        self._registry = registry

    def first_owner(self, admitted: Admitted | None, is_local: bool, address: str) -> Owner:
        """Return the owner until the handshakes are done. `admitted`: its local user; None: the broker's own."""
        principal = admitted.principal if admitted is not None else self._principals.local
        return self._owner(principal, is_local, address)

    def send_outgoing(self, peer: StreamConnection) -> None:
        """Send the bytes of the carrier itself: its greeting, handshake and replies. Before the handshake of TLS is
        done, they are held back."""
        if not peer.is_held or self._may_greet(peer):
            peer.is_held = False
            self._registry.post(peer, peer.carrier.outgoing)
            peer.carrier.outgoing = []

    def _may_greet(self, peer: StreamConnection) -> bool:
        """True once the carrier may send its first bytes: the handshake of TLS is done, and the certificate is known.

        A client whose certificate belongs to no principal gets no byte, by which it recognises that, unless its dialect
        has a message for it: then it is told after the handshake of the carrier (R137).
        """
        stream = peer.stream
        if stream is None or not stream.is_ready or peer.closing is not None:
            return False
        if peer.auth is None or peer.session.refusal("") is not None:
            return True
        found = peer.auth.rejection(stream.peer_certificate)
        if found is not None:
            self._registry.turned_away(peer, found.reason, found.detail, found.identity)
        return found is None

    def identify(self, peer: StreamConnection) -> bool:
        """Find the principal of a connection whose handshakes are done. False: it was turned away."""
        if peer.closing is not None and not peer.dialled:
            return False
        if peer.auth is not None and peer.stream is not None:
            found = peer.auth.judge(peer.admitted or NOBODY, peer.stream.peer_certificate, peer.carrier)
            if isinstance(found, Rejected):
                self._registry.turned_away(peer, found.reason, found.detail, found.identity)
                return False
            peer.admitted = found
            if found.principal is not peer.owner.principal:
                peer.owner.leave()
                peer.belong_to(self._owner(found.principal, peer.is_local, peer.address))
                peer.owner.enter()
        principal = peer.owner.principal
        over_share = None
        if peer.handshake:  # its principal was not known when it was accepted
            registry = self._registry
            over_share = registry.admission.over_share(principal, peer.address, len(registry.peers), 1)
        if over_share is not None:
            identity = peer.admitted.label if peer.admitted is not None else ""
            self._registry.turned_away(peer, "too many connections", over_share, identity)
            return False
        if principal.peers > principal.max_peers:
            limit, in_cluster = principal.limits.max_peers, " in the cluster" if principal.share is not None else ""
            detail = f"{principal.name} has {limit}{in_cluster}, the maximum (max_peers of {principal.name})"
            identity = peer.admitted.label if peer.admitted is not None else ""
            self._registry.turned_away(peer, "too many connections", detail, identity)
            return False
        if peer.admitted is not None and peer.admitted.identity is not None:
            is_by_old_key = peer.auth is not None and peer.auth.is_by_old_key(peer.carrier)
            if peer.auth is not None and is_by_old_key:
                peer.auth.authentication.note_old_key(principal)
            self._registry.admitted(peer, peer.admitted, is_by_old_key=is_by_old_key)
        return True

    def _owner(self, principal: Principal, is_local: bool, address: str) -> Owner:
        return Owner(principal, address=address) if is_local else self._owners.at(address, principal)
