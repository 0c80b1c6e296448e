"""A script: starts a program that ends with this server, confined by Landlock and seccomp if the plan says so.

It runs between the fork and the program, in an interpreter of its own, because code of this process must not run there: other
threads of the server may hold locks. If a step of the confinement fails, the program is not started.

Landlock closes what is opened by path. What it leaves open is closed by a seccomp filter (sockets, changes of modes, owners,
times and attributes) and by giving up all capabilities. Constants: https://docs.kernel.org/userspace-api/landlock.html,
`linux/landlock.h`, `linux/seccomp.h`, `linux/audit.h` and the tables of system calls.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import stat
import struct
import sys
from contextlib import suppress

LEAST_ABI = 6
"""Linux 6.12: the first that also keeps a program from sending signals and from abstract sockets outside."""
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 24, 22, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every machine
_ALL_FILES, _ALL_TCP, _ALL_SCOPES = (1 << 16) - 1, 0b11, 0b11
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1, 2, 4, 8

# Of each machine: its number in `linux/audit.h`, `socket`, and the calls that Landlock does not look at. The last ones are
# fchmodat2, setxattrat, removexattrat, file_setattr and io_uring_setup, which have the same number everywhere.
_NEW_CALLS = (452, 463, 466, 469, 425)
_MACHINES = {
    "x86_64": (0xC000003E, 41, (90, 91, 92, 93, 94, 132, 188, 189, 190, 197, 198, 199, 235, 260, 261, 268, 280, *_NEW_CALLS)),
    "aarch64": (0xC00000B7, 198, (5, 6, 7, 14, 15, 16, 52, 53, 54, 55, 88, *_NEW_CALLS)),
}  # fmt: skip
_INTERNET = (2, 10)
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # EPERM


def landlock_abi() -> int:
    """The version of Landlock here that this script can use; 0 without."""
    if sys.platform != "linux" or platform.machine() not in _MACHINES or sys.byteorder != "little":
        return 0
    found = int(ctypes.CDLL(None, use_errno=True).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1))
    return found if found >= LEAST_ABI else 0


def main(plan: str, *argv: str) -> None:
    """Becomes the program `argv`.

    Args:
        plan: JSON with `parent`, the server's process id, and `readable`, the paths that the program may read and execute, or
            null for no confinement; `network`: whether it may use the network.
    """
    facts = json.loads(plan)
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "linux":
        _checked(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if os.getppid() != facts["parent"]:  # it ended before the line above
        return
    if facts["readable"] is not None:
        _give_up_capabilities(libc)
        _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        _close_files(libc, facts["readable"], network=facts["network"])
        _close_calls(libc, network=facts["network"])
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # this interpreter ignores them, and the program would too
        signal.signal(ignored, signal.SIG_DFL)
    os.execv(argv[0], argv)  # noqa: S606 - no shell: this is the program


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _give_up_capabilities(libc: ctypes.CDLL) -> None:
    """Also those that root would get back when it executes a program."""
    for number in range(64):
        libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # fails for unknown ones, and without capabilities
    header = struct.pack("=Ii", 0x20080522, 0)
    _checked(libc.capset(header, bytes(24)))


def _close_files(libc: ctypes.CDLL, readable: list[str], *, network: bool) -> None:
    rules = struct.pack("=QQQ", _ALL_FILES, 0 if network else _ALL_TCP, _ALL_SCOPES)
    ruleset = _checked(libc.syscall(_CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0))
    for path in readable:
        with suppress(FileNotFoundError, PermissionError):
            _allow(libc, ruleset, path, _READ_FILE | _READ_FOLDER | _EXECUTE)
    _allow(libc, ruleset, os.devnull, _READ_FILE | _WRITE_FILE)
    _checked(libc.syscall(_RESTRICT_SELF, ruleset, 0))


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, access: int) -> None:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            access &= ~_READ_FOLDER
        _checked(libc.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", access, handle), 0))
    finally:
        os.close(handle)


def _close_calls(libc: ctypes.CDLL, *, network: bool) -> None:
    machine, socket, refused = _MACHINES[platform.machine()]
    number, kind, first_argument = 0, 4, 16  # offsets in `struct seccomp_data`
    steps = [(_LOAD, 0, 0, kind), (_EQUAL, 1, 0, machine), (_RETURN, 0, 0, _REFUSE), (_LOAD, 0, 0, number)]
    steps += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _REFUSE)]  # the x32 names of the same calls
    for call in refused:
        steps += [(_EQUAL, 0, 1, call), (_RETURN, 0, 0, _REFUSE)]
    families = _INTERNET if network else ()
    steps += [(_EQUAL, 0, len(families) + 2, socket), (_LOAD, 0, 0, first_argument)]
    steps += [(_EQUAL, len(families) - at, 0, family) for at, family in enumerate(families)]
    steps += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    given = Filter(len(steps), code)
    _checked(libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(given), 0, 0))


if __name__ == "__main__":
    main(*sys.argv[1:])
