"""TensorFlow's servers on loopback alone.

A server of TensorFlow listens on all addresses of its machine, whatever address it is given. Linux lets a socket that
listens already be bound to a device; connections by other devices are refused from then on.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from feat2vec.errors import UserError

LISTENING = "0A"  # the state of a socket in /proc/net/tcp
DEVICE = b"lo\0"
PROCESS = Path("/proc/self")
REFUSED = "TensorFlow's server cannot be kept on loopback here ({}); in a private network add --host 0.0.0.0"


def listen_on_loopback_alone() -> int:
    """Bind each socket at which this process listens for TCP to the device of loopback.

    Returns:
        The number of sockets.

    Raises:
        UserError: The system does not let sockets be bound to a device, as systems other than Linux.

    """
    option = getattr(socket, "SO_BINDTODEVICE", None)
    if option is None or not (PROCESS / "net" / "tcp").exists():
        raise UserError(REFUSED.format("it takes Linux"))
    sockets = listening_sockets()
    for descriptor in sockets:
        with socket.socket(fileno=os.dup(descriptor)) as listening:
            try:
                listening.setsockopt(socket.SOL_SOCKET, option, DEVICE)
            except OSError as error:
                raise UserError(REFUSED.format(error.strerror)) from None
    return len(sockets)


def listening_sockets() -> list[int]:
    """The file descriptors of this process that listen for TCP."""
    inodes = set()
    for protocol in ("tcp", "tcp6"):
        table = PROCESS / "net" / protocol
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            words = line.split()
            if words[3] == LISTENING:
                inodes.add(words[9])
    descriptors = []
    for link in (PROCESS / "fd").iterdir():
        try:
            inode = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(link))
        except OSError:  # such as the descriptor of this listing
            continue
        if inode is not None and inode[1] in inodes:
            descriptors.append(int(link.name))
    return sorted(descriptors)
