#!/usr/bin/env python3
"""A home on a file system whose locks do not hold (NFS, a Windows drive under WSL, ...) is refused with
its name and the fix, and no database is made there; `doctor --offline` says the same. A preloaded
library (planted_statfs.cc) says on what the home lies, as statfs(2) would.

With --planted ordinary it says ext4: the harness must see that nothing was refused.
"""
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import profile

from harness import BIN, PLANTED, check, finish, json, os

KINDS = {"NFS": 0x6969, "9p (a Windows drive under WSL)": 0x01021997, "CIFS": 0xFF534D42, "FUSE": 0x65735546}
EXT4 = 0xEF53
FIX = "choose a --home on a local disk"


def run(home, kind, program, *arguments):
    """Exit status (None: it went on), stdout, stderr."""
    library = BIN.parent / "tests" / "libplanted_statfs.so"
    if not library.exists():
        sys.exit(f"{library} is missing: build the target planted_statfs")
    environment = {**os.environ, "LD_PRELOAD": str(library), "PONDER_STATFS_DIR": home,
                   "PONDER_STATFS_TYPE": hex(EXT4 if PLANTED else kind)}
    with subprocess.Popen([BIN / program, "--home", home, *arguments], env=environment, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            out, err = process.communicate(timeout=2 if PLANTED else 20)
            return process.returncode, out, err
        except subprocess.TimeoutExpired:
            process.terminate()
            process.communicate()
            return None, "", ""


# 7a rows 8 and 9, beads#920, WSL#2395, opencode#14970: a database on such a disk is damaged.
refused = 0
wanted = list(KINDS.items())[:1 if PLANTED else profile.size(2, len(KINDS))]
for name, kind in wanted:
    with tempfile.TemporaryDirectory(prefix="ponder-e2e-") as home:
        code, _, said = run(home, kind, "ponderd", "--engine", "stub", "--port", "0")
        refused += check(code == 1, f"a home on {name} is served: ponderd {'goes on' if code is None else f'exits {code}'}")
        why = f"{home} is on {name}, where a database's locks do not hold"
        check(why in said and FIX in said, f"{name}: it says why, and what to do: {said!r}")
        made = [path.name for path in pathlib.Path(home).glob("ponder.db*")]
        check(not made, f"{name}: no database is made there: {made}")
        code, said, _ = run(home, kind, "ponder", "--json", "doctor", "--offline")
        row = next((row for row in json.loads(said)["checks"] if row["name"] == "file system"), {})
        check(code != 0 and row.get("state") == "fail", f"{name}: doctor --offline exits {code}: {row}")
        check(row.get("message") == why and FIX in (row.get("hint") or ""), f"{name}: with the same words: {row}")
profile.figure(14, "homes on file systems without locks: refused", refused, len(wanted))
finish("file systems")
