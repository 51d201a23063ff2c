#!/usr/bin/env python3
"""One daemon for one home, whoever starts it and whatever lies around: sixteen starters at once, stale
sockets and lock files, things in the way, a daemon that is suspended, and one of another version.

--planted connect_then_unlink takes starters of another kind: connect, else unlink the socket and bind it.
"""
import json
import pathlib
import shutil
import signal
import socket
import socketserver
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import profile

from harness import BIN, PLANTED, check, finish, os, subprocess, time, wait_until

STARTERS = 16
PROGRAMS = ("ponder", "ponderd", "ponder-mcp", "ponder-engine")
# Rights bind everybody but root, so leftovers that are read-only are tried as somebody else, where
# somebody else can run programs (in some containers /dev/null is root's alone).
NOBODY = 65534 if os.geteuid() == 0 and os.stat(os.devnull).st_mode & 0o006 == 0o006 else None

IMITATION = """
import os, socket, sys, time
path = sys.argv[1] + "/ponderd.sock"
def connect():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
try:
    connect()
except OSError:
    time.sleep(0.05)
    try:
        os.unlink(path)
    except OSError:
        pass
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    if os.fork():
        os._exit(0)
    os.setsid()
    for fd in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    while True:
        listener.accept()[0].close()
"""


class Place:
    """A private home and programs that whoever uses it may run."""

    def __init__(self, uid=None):
        self.uid = uid
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="ponder-one-"))
        self.home, self.bin = self.top / "home", BIN
        if uid is not None:
            self.top.chmod(0o755)
            self.bin = self.top / "bin"
            self.bin.mkdir()
            for name in PROGRAMS:
                shutil.copy(BIN / name, self.bin / name)
                (self.bin / name).chmod(0o755)
        self.fresh()

    def fresh(self):
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(mode=0o700)
        (self.home / "ponder.toml").write_text('engine = "stub"\nport = 0\n')
        self.own()

    def own(self):
        if self.uid is not None:
            for path in [self.home, *self.home.rglob("*")]:
                os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def popen(self, program, *arguments, stdin=subprocess.DEVNULL):
        def become():
            if self.uid is not None:
                os.setgroups([])
                os.setgid(self.uid)
                os.setuid(self.uid)

        return subprocess.Popen([self.bin / program, *arguments], stdin=stdin, stdout=subprocess.PIPE, text=True,
                                stderr=subprocess.PIPE, cwd="/", env={"HOME": str(self.top), "PATH": "/usr/bin:/bin"},
                                preexec_fn=become)

    def run(self, program, *arguments, timeout=40):
        process = self.popen(program, *arguments)
        out, err = process.communicate(timeout=timeout)
        return process.returncode, out, err

    def daemons(self):
        """The pids of what lives and serves, or means to serve, this home."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            except OSError:
                continue
            is_daemon = words and (words[0].endswith(b"/ponderd") or b"os.setsid()" in b"".join(words[1:3]))
            if is_daemon and str(self.home).encode() in words:
                found.append(int(entry.name))
        return found

    def settled(self):
        """The same, once those that found another one have ended: their clients were served by it and did
        not wait for them."""
        end = time.monotonic() + 3
        while len(self.daemons()) > 1 and time.monotonic() < end:
            time.sleep(0.02)
        return self.daemons()

    def end(self, number=signal.SIGKILL):
        for pid in self.daemons():
            try:
                os.kill(pid, number)
            except OSError:
                pass
        wait_until(lambda: not self.daemons(), 15, "what was killed is gone")

    def close(self):
        self.end()
        shutil.rmtree(self.top, ignore_errors=True)


def mcp_call(process, tool, arguments):
    """One tool call through a ponder-mcp; its result."""
    for message in ({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "h", "version": "1"}}},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}):
        process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()
    result = {"isError": True, "content": [{"text": "no answer"}]}
    for line in process.stdout:
        if json.loads(line).get("id") == 2:
            result = json.loads(line).get("result", {})
            break
    process.stdin.close()
    process.stdout.close()
    process.stderr.close()
    process.wait(30)
    return result


def start_and_ask(place, kind, number):
    """One starter; whether it was served, and what it said if not."""
    if PLANTED:
        done = subprocess.run([sys.executable, "-c", IMITATION, place.home], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30)
        return done.returncode == 0, ""
    if kind == 0:
        code, out, err = place.run("ponder", "--home", place.home, "submit", f"from starter {number} [[stub tokens=3]]")
        return code == 0 and len(out.strip()) == 26, err
    if kind == 1:
        process = place.popen("ponder-mcp", "--home", place.home, stdin=subprocess.PIPE)
        result = mcp_call(process, "submit", {"task": f"from starter {number} [[stub tokens=3]]"})
        return not result.get("isError"), str(result)[:300]
    code, out, err = place.run("ponderd", "--detach", "--home", place.home)
    return code == 0, err  # it serves, or says that another one does


def all_at_once(place):
    """7a row 15, dev-browser#110, cocoindex-code#243: a cold start of many, and one daemon."""
    served, slowest, words = [], 0, []
    gate = threading.Barrier(STARTERS)

    def start(number):
        nonlocal slowest
        gate.wait()
        began = time.monotonic()
        ok, said = start_and_ask(place, number % 3, number)
        slowest = max(slowest, time.monotonic() - began)
        served.append(ok)
        if not ok:
            words.append(said)

    threads = [threading.Thread(target=start, args=(k,)) for k in range(STARTERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(served), slowest, words


def sixteen_starters():
    place = Place()
    rounds, worst, served, most = profile.size(10, 100), 0, 0, 0
    try:
        for k in range(3 if PLANTED else rounds):
            if k % 2 == 0:
                place.fresh()  # else what a killed daemon left behind
            ok, slowest, words = all_at_once(place)
            daemons = place.settled()
            most, worst, served = max(most, len(daemons)), max(worst, slowest), served + ok
            check(len(daemons) == 1, f"round {k}: {len(daemons)} daemons live")
            check(ok == STARTERS, f"round {k}: {ok} of {STARTERS} starters were served: {words[:2]}")
            place.end(signal.SIGTERM if k % 4 == 3 else signal.SIGKILL)
        check(worst <= 5, f"a starter was served after {worst:.2f} s")
        profile.figure(12, f"daemons after {STARTERS} starters at once, {rounds} times: most", most, 1)
        profile.figure(12, "starters served", f"{served} of {STARTERS * rounds}", "all")
        profile.figure(12, "slowest starter", f"{worst:.2f} s", "5 s")
    finally:
        place.close()


# --- what lies around ----------------------------------------------------------------------------


def stale_socket(home):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "ponderd.sock"))


def foreign_pid(home):
    (home / "ponderd.lock").write_text(f"{os.getpid()}\n")  # T20, claude-code#72898: a recycled pid


def pid_one(home):
    stale_socket(home)
    (home / "ponderd.lock").write_text("1\n")


def odd_lock(home):
    (home / "ponderd.lock").write_bytes(b"\xff\0not a pid" * 100)


def read_only_lock(home):
    foreign_pid(home)
    (home / "ponderd.lock").chmod(0o400)


def closed_lock(home):
    (home / "ponderd.lock").touch(0o600)
    (home / "ponderd.lock").chmod(0)


def read_only_start_lock(home):
    (home / "start.lock").touch()
    (home / "start.lock").chmod(0o400)


def read_only_socket(home):
    stale_socket(home)
    (home / "ponderd.sock").chmod(0o400)


def read_only_notes(home):
    for name in ("started-with", "started-with.new"):
        (home / name).write_text("[")
        (home / name).chmod(0o400)


LEFTOVERS = [stale_socket, foreign_pid, pid_one, odd_lock, read_only_lock, closed_lock, read_only_start_lock,
             read_only_socket, read_only_notes]


def stale_states():
    place = Place(NOBODY)
    if os.geteuid() == 0 and NOBODY is None:
        print("read-only leftovers are tried as root, whom they do not stop", flush=True)
    states, recovered, worst = profile.size(20, 100), 0, 0
    try:
        for k in range(states):
            leave = LEFTOVERS[k % len(LEFTOVERS)]
            if k // len(LEFTOVERS) % 2 == 0:
                place.fresh()  # else beside all that the killed daemon of the state before left
            for name in ("ponderd.sock", "ponderd.lock", "start.lock", "started-with", "started-with.new"):
                (place.home / name).unlink(missing_ok=True)
            leave(place.home)
            place.own()
            began = time.monotonic()
            code, out, err = place.run("ponder", "--home", place.home, "submit", f"state {k} [[stub tokens=3]]")
            took = time.monotonic() - began
            worst = max(worst, took)
            recovered += check(code == 0 and took <= 5, f"{leave.__name__}: exit {code} after {took:.2f} s: {err.strip()}")
            live = len(place.settled())
            check(live == 1, f"{leave.__name__}: {live} daemons")
            place.end()
        profile.figure(12, "stale states recovered", f"{recovered} of {states}", "all")
        profile.figure(12, "slowest recovery", f"{worst:.2f} s", "5 s")
    finally:
        place.close()


def things_in_the_way():
    """What cannot be recovered is said in a sentence that names it, and nothing of it is removed."""
    place = Place()
    try:
        for name in ("ponderd.sock", "ponderd.lock"):
            for make in (lambda path: path.mkdir(), lambda path: path.symlink_to("/etc/hostname")):
                place.fresh()
                thing = place.home / name
                make(thing)
                began = time.monotonic()
                code, _, err = place.run("ponder", "--home", place.home, "submit", "in the way")
                took = time.monotonic() - began
                kind = "a directory" if thing.is_dir() else "a link"
                check(code in (69, 74) and name in err and took <= 5, f"{kind} as {name}: exit {code} after {took:.1f} s: {err}")
                check(thing.is_symlink() or thing.is_dir(), f"{kind} as {name} was removed")
                check(not place.daemons(), f"{kind} as {name}: a daemon lives")
        place.fresh()
        (place.home / "ponderd.sock").write_text("a file of mine")
        code, _, err = place.run("ponderd", "--detach", "--home", place.home)
        check(code == 1 and "not a socket" in err, f"a file as the socket: exit {code}: {err}")
        check((place.home / "ponderd.sock").read_text() == "a file of mine", "the file is kept")
    finally:
        place.close()


# --- one that does not answer, one of another kind ------------------------------------------------


def asks_all(place):
    """Every kind of client, one after the other: (what, seconds, exit code or isError, its words)."""
    home = ("--home", place.home)
    for words in (("ps",), ("submit", "x"), ("health",), ("models",), ("wait", "--wait-s", "1", "@last")):
        began = time.monotonic()
        code, out, err = place.run("ponder", *home, *words)
        yield "ponder " + words[0], time.monotonic() - began, code != 0, out + err
    process = place.popen("ponder-mcp", *home, stdin=subprocess.PIPE)
    began = time.monotonic()
    result = mcp_call(process, "submit", {"task": "x"})
    yield "ponder-mcp submit", time.monotonic() - began, bool(result.get("isError")), str(result)


def suspended_daemon():
    """7a row 17, mcporter#195: the socket of a stopped daemon still accepts."""
    place = Place()
    slowest = 0
    try:
        check(place.run("ponder", "--home", place.home, "submit", "first")[0] == 0, "a daemon is started")
        pid = place.daemons()[0]
        os.kill(pid, signal.SIGSTOP)
        for what, took, failed, words in asks_all(place):
            slowest = max(slowest, took)
            check(failed and took <= 3, f"{what} of a suspended daemon: failed {failed} after {took:.2f} s")
            check(str(pid) in words and "suspended" in words, f"{what} names the process {pid}: {words[:300]}")
        began = time.monotonic()
        code, out, err = place.run("ponderd", "--detach", "--home", place.home)
        took = time.monotonic() - began
        check(code == 0 and f"pid {pid}" in err and took <= 3, f"ponderd beside it: exit {code} after {took:.2f} s: {err}")
        check(place.daemons() == [pid], f"a suspended daemon was replaced: {place.daemons()}")
        os.kill(pid, signal.SIGCONT)
        check(place.run("ponder", "--home", place.home, "ps")[0] == 0, "it serves when it goes on")
        profile.figure(12, "a suspended daemon: slowest error of a client", f"{slowest:.2f} s", "3 s")
    finally:
        place.close()


def suspended_while_it_starts():
    """It has its lock and not yet its socket."""
    place = Place()
    holder = subprocess.Popen([sys.executable, "-c", f"""
import fcntl, os, signal
lock = open({str(place.home / 'ponderd.lock')!r}, "w")
fcntl.flock(lock, fcntl.LOCK_EX)
lock.write(str(os.getpid()) + "\\n"); lock.flush()
os.kill(os.getpid(), signal.SIGSTOP)
"""])
    try:
        wait_until(lambda: pathlib.Path(f"/proc/{holder.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T",
                   5, "the holder of the lock is stopped")
        began = time.monotonic()
        code, _, err = place.run("ponder", "--home", place.home, "submit", "x")
        took = time.monotonic() - began
        check(code == 69 and took <= 3 and str(holder.pid) in err, f"exit {code} after {took:.2f} s: {err}")
    finally:
        holder.kill()
        holder.wait()
        place.close()


class OtherVersion(socketserver.StreamRequestHandler):
    """A daemon of another version, as far as it matters here."""

    version = None

    def handle(self):
        while self.rfile.readline().strip():
            pass
        data = json.dumps({"jobs": [], "next_before": None}).encode()
        said = f"Ponder-Api: {self.version}\r\n" if self.version else ""
        self.wfile.write(f"HTTP/1.1 200 OK\r\n{said}Content-Type: application/json\r\n"
                         f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)


def other_versions():
    """T22, OmniFocus-MCP#99: served or refused with the way out, never silent."""

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

    for version, served in ((None, True), ("1", True), ("2", False), ("\x1b[31m", False)):
        place = Place()
        server = Server(str(place.home / "ponderd.sock"), type("Handler", (OtherVersion,), {"version": version}))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            code, out, err = place.run("ponder", "--home", place.home, "ps")
            check((code == 0) == served, f"a daemon of interface {version!r}: exit {code}: {err}")
            named = "restart`" in err and "version 2" in err if version == "2" else "does not answer as a Ponder daemon" in err
            check(served or named, f"with interface {version!r} the reason and the way out are named: {err}")
            check("\x1b" not in err, "nothing of it reaches the terminal raw")
            process = place.popen("ponder-mcp", "--home", place.home, stdin=subprocess.PIPE)
            result = mcp_call(process, "status", {})
            check(bool(result.get("isError")) != served, f"over MCP with interface {version!r}: {str(result)[:200]}")
        finally:
            server.shutdown()
            server.server_close()
            place.close()


sixteen_starters()
if not PLANTED:
    stale_states()
    things_in_the_way()
    suspended_daemon()
    suspended_while_it_starts()
    other_versions()
finish("one daemon")
