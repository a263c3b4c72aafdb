"""Runs a command to which the kernel refuses all file locks, as Lustre without `flock` or NFS without lockd do.

    python tests/support/no_locks.py ENOSYS COMMAND...

The system calls flock and fcntl(F_SETLK, F_SETLKW) fail with that error, in the command and in all that it starts
(seccomp(2)): what Fabricheck, ReFrame, SQLite and the shell then see is the real thing.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import sys

_NUMBERS = {"x86_64": {"flock": 73, "fcntl": 72}, "aarch64": {"flock": 32, "fcntl": 25}}
# linux/filter.h: load a word of seccomp_data; jump if equal; return. Of it: the number at 0, the second argument at 24.
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NO_NEW_PRIVILEGES, _SECCOMP, _MODE_FILTER = 38, 22, 2


def refuse_locks(error: int) -> None:
    """From now on no file can be locked by this process. Raises OSError where the kernel does not filter."""
    numbers = _NUMBERS[os.uname().machine]
    refused = _ERRNO | error
    program = [
        (_LOAD, 0, 0, 0),
        (_IF_EQUAL, 4, 0, numbers["flock"]),
        (_IF_EQUAL, 0, 4, numbers["fcntl"]),
        (_LOAD, 0, 0, 24),
        (_IF_EQUAL, 1, 0, fcntl.F_SETLK),
        (_IF_EQUAL, 0, 1, fcntl.F_SETLKW),
        (_RETURN, 0, 0, refused),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *each) for each in program))
    whole = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for arguments in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SECCOMP, _MODE_FILTER, whole, 0, 0)):
        if prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    refuse_locks(getattr(errno, sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
