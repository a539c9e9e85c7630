"""A slow link between two TCP ports of this host: a rate, a delay that varies, and losses.

It works as any user and where the kernel lacks netem. What is lost is a packet below TCP, so what a program sees of it
is that the packet and all behind it come later, after a retransmission.
"""

import random
import socket
import threading
import time
from queue import SimpleQueue
from types import TracebackType

#: 802.11b, the paper's example: "a physical 802.11b wireless link, which only has a maximum transfer rate of 11Mbps".
BITS_PER_SECOND = 11_000_000
#: One way, uniformly between these.
DELAY_S = (0.000_5, 0.005)
LOSS_SHARE = 0.002
#: Linux's shortest retransmission timeout (TCP_RTO_MIN).
RETRANSMISSION_S = 0.2
#: Of an Ethernet frame, without the headers.
PACKET_BYTES = 1_448


class Link:
    """Listens on `address` and passes on to and from another one, as a slow link does."""

    def __init__(self, to: str, seed: int = 1) -> None:
        host, _, port = to.rpartition(":")
        self._to = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._seed = seed
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "Link":
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._to)
            for way, (source, target) in enumerate([(near, far), (far, near)]):
                for end in (source, target):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                packets: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
                dice = random.Random(2 * self._seed + way)
                threading.Thread(target=send_in, args=(source, packets, dice), daemon=True).start()
                threading.Thread(target=come_out, args=(target, packets), daemon=True).start()


def send_in(source: socket.socket, packets: SimpleQueue[tuple[float, bytes]], dice: random.Random) -> None:
    """Take packets from the sender and decide when each arrives; an empty one is the end."""
    free_at = arrived_at = 0.0
    while True:
        try:
            packet = source.recv(PACKET_BYTES)
        except OSError:
            packet = b""
        free_at = max(free_at, time.monotonic()) + 8 * len(packet) / BITS_PER_SECOND
        lost = RETRANSMISSION_S if dice.random() < LOSS_SHARE else 0.0
        arrived_at = max(arrived_at, free_at + dice.uniform(*DELAY_S) + lost)
        packets.put((arrived_at, packet))
        # No more is under way than fits on the wire for a while: a sender feels the rate.
        time.sleep(max(0.0, free_at - time.monotonic() - DELAY_S[1]))
        if not packet:
            return


def come_out(target: socket.socket, packets: SimpleQueue[tuple[float, bytes]]) -> None:
    """Hand the packets on when they have arrived."""
    while True:
        arrived_at, packet = packets.get()
        time.sleep(max(0.0, arrived_at - time.monotonic()))
        try:
            if not packet:
                target.shutdown(socket.SHUT_WR)
                return
            target.sendall(packet)
        except OSError:
            return
