"""Exchanges two names as fast as it can, until it is killed: `swapper.py ONE OTHER`.

A program of its own, so that it truly runs beside what it races against.
"""

import ctypes
import os
import sys

RENAME_EXCHANGE = 2


def main() -> None:
    one, other = (os.fsencode(path) for path in sys.argv[1:])
    rename = ctypes.CDLL(None, use_errno=True).renameat2
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        if rename(-100, one, -100, other, RENAME_EXCHANGE) != 0:
            sys.exit(os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main()
