"""signal_rank.py SIGNAL NODE DELAY [PATIENCE]: signals the rank on NODE that many seconds after it was first seen.

PAUSE as SIGNAL stops it for 150 ms again and again, each half second, until it has ended.
"""

import os
import signal
import sys
import time
from pathlib import Path

network = Path(f"/run/netns/{sys.argv[2]}").stat().st_ino
until = time.time() + float(sys.argv[4] if len(sys.argv) > 4 else 50)
while time.time() < until:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            # It starts itself anew, as /proc/self/exe.
            program = (process / "comm").read_text().strip() in ("exe", "fabricbench")
            if program and (process / "ns/net").stat().st_ino == network:
                time.sleep(float(sys.argv[3]))
                while sys.argv[1] == "PAUSE" and process.exists():
                    os.kill(int(process.name), signal.SIGSTOP)
                    time.sleep(0.15)
                    os.kill(int(process.name), signal.SIGCONT)
                    time.sleep(0.35)
                if sys.argv[1] != "PAUSE":
                    os.kill(int(process.name), getattr(signal, f"SIG{sys.argv[1]}"))
                sys.exit()
        except OSError:
            continue
    time.sleep(0.05)
