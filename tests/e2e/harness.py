"""Drives the real programs from outside: a daemon in a private home, HTTP over its Unix socket,
MCP over a pipe, and a proxy that plants bugs between client and daemon, so that each harness can
be shown to fail. Standard library only.

Every test program is run as  TEST.py BIN_DIR [--planted NAME]  and exits 0 when all its checks
hold; `check` prints each breach and counts it.
"""
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time

BIN = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else pathlib.Path("build/release/bin")
PLANTED = sys.argv[sys.argv.index("--planted") + 1] if "--planted" in sys.argv else None
ROOT = pathlib.Path(__file__).resolve().parents[2]
TERMINAL = {"completed", "incomplete", "failed", "cancelled", "interrupted", "expired"}
breaches = []


def check(holds, what):
    if not holds:
        breaches.append(what)
        print("BREACH:", what, flush=True)
    return bool(holds)


def finish(name):
    print(f"{name}: {len(breaches)} breaches", flush=True)
    sys.exit(1 if breaches else 0)


def wait_until(condition, seconds, what):
    """The condition's first true value; a breach and None if there is none in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    check(False, f"not within {seconds} s: {what}")
    return None


def alive(pid):
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


held_ports = []


def free_port():
    """A TCP port that only this test can use, for a server that sets SO_REUSEADDR as ponderd does. The
    port stays bound here, without listening: bind() gives it to no other test meanwhile."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("", 0))
    held_ports.append(s)
    return s.getsockname()[1]


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body) if self.body else None


class Daemon:
    """A ponderd of its own. `arguments` are added to `ponderd --home HOME --port 0`. `environment` is
    added to its environment, `before` stands before the program (such as strace and its options)."""

    def __init__(self, *arguments, home=None, program=BIN / "ponderd", environment=None, before=()):
        self.program = program
        self.environment = dict(environment or {})
        self.before = list(before)
        self.home = pathlib.Path(home or tempfile.mkdtemp(prefix="ponder-e2e-"))
        self.own_home = home is None
        self.arguments = list(arguments)
        self.socket = self.home / "ponderd.sock"
        self.process = None
        self.log = self.home / "stderr.log"

    def start(self, wait_ready=True):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self.before, self.program, "--home", self.home, "--port", "0", *self.arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **self.environment})
        if wait_ready:
            wait_until(lambda: self.try_health().get("state") in ("ready", "busy"), 30, "the daemon is ready")
        return self

    def try_health(self):
        try:
            return self.call("GET", "/health", timeout=5).json or {}
        except (OSError, http.client.HTTPException, ValueError):
            return {}

    def call(self, method, target, body=None, timeout=70, headers=None, raw=None, via=None):
        connection = UnixConnection(via or self.socket, timeout)
        try:
            data = raw if raw is not None else (None if body is None else json.dumps(body).encode())
            send = {"Content-Type": "application/json"} if data is not None else {}
            connection.request(method, target, data, {**send, **(headers or {})})
            answer = connection.getresponse()
            return Reply(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def submit(self, task, via=None, **fields):
        return self.call("POST", "/v1/jobs", {"task": task, **fields}, via=via)

    def job(self, job_id, wait_s=None, via=None):
        suffix = f"?wait_s={wait_s}" if wait_s else ""
        return self.call("GET", f"/v1/jobs/{job_id}{suffix}", via=via).json

    def wait_terminal(self, job_id, seconds=60, via=None):
        end = time.monotonic() + seconds
        while True:
            job = self.job(job_id, wait_s=min(20, max(0.1, end - time.monotonic())), via=via)
            if job["state"] in TERMINAL or time.monotonic() > end:
                return job

    def all_jobs(self, via=None):
        jobs, before = [], ""
        while True:
            page = self.call("GET", f"/v1/jobs?limit=500&before={before}", via=via).json
            jobs += page["jobs"]
            before = page["next_before"]
            if not before:
                return jobs

    def text(self, job_id, part="partial", via=None):
        return self.call("GET", f"/v1/jobs/{job_id}/result?part={part}", via=via).json["text"]

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        return self.process.wait(20)

    def stop(self):
        code = None
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                code = self.process.wait(20)
            except subprocess.TimeoutExpired:
                check(False, "the daemon stops within 20 s of SIGTERM")
                self.process.kill()
                self.process.wait()
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        if breaches and self.log.exists():
            print("--- the daemon's log\n" + self.log.read_text(errors="replace")[-4000:], flush=True)
        if self.own_home:
            shutil.rmtree(self.home, ignore_errors=True)


def planted_sqlite(bug):
    """The environment of a ponderd with this bug of tests/fault/planted_sqlite.cc; none: without."""
    library = BIN.parent / "tests" / "libplanted_sqlite.so"
    if bug and not library.exists():
        sys.exit(f"{library} is missing: build the target planted_sqlite")
    return {"LD_PRELOAD": str(library), "PONDER_PLANTED": bug} if bug else {}


def cli(home, *arguments, stdin=None, timeout=90, env=None):
    """Runs ponder; the CompletedProcess with text output."""
    return subprocess.run([BIN / "ponder", "--home", home, *arguments], input=stdin, capture_output=True,
                          text=True, timeout=timeout, stdin=None if stdin is not None else subprocess.DEVNULL,
                          env={**os.environ, **(env or {})})


class Mcp:
    """A ponder-mcp on a pipe, with the 2025-11-25 handshake done."""

    def __init__(self, home, cwd=None, extra=(), socket_override=None, environment=None):
        self.process = subprocess.Popen([BIN / "ponder-mcp", "--home", home, *extra], cwd=cwd, text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        env={**os.environ, **(environment or {})})
        self.replies, self.ready = {}, threading.Condition()
        self.next_id = 0
        threading.Thread(target=self._read, daemon=True).start()
        self.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {},
                                    "clientInfo": {"name": "harness", "version": "1"}})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            with self.ready:
                if "id" in message:
                    self.replies[message["id"]] = message
                self.ready.notify_all()

    def _send(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def begin(self, method, params=None):
        self.next_id += 1
        self._send({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params or {}})
        return self.next_id

    def end(self, request_id, timeout=60):
        with self.ready:
            self.ready.wait_for(lambda: request_id in self.replies, timeout)
            return self.replies.get(request_id)

    def request(self, method, params=None, timeout=60):
        return self.end(self.begin(method, params), timeout)

    def tool(self, name, timeout=60, **arguments):
        reply = self.request("tools/call", {"name": name, "arguments": arguments}, timeout)
        check(reply is not None and "result" in reply, f"the tool {name} answers, got {str(reply)[:300]}")
        return (reply or {}).get("result", {})

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


class PlantingProxy:
    """Stands between clients and the daemon's socket and plants one bug of the kind named:

    ack_without_commit  every fifth submit is answered 201 but never reaches the daemon
    submit_twice        every fifth submit is sent twice
    corrupt_text        texts of running and requeued jobs come back with one character changed
    hide_faults         incomplete jobs are shown as completed
    wedge_on_bad_input  after a 4xx answer nothing is answered any more
    always_ready        /health says ready, whatever it is
    """

    def __init__(self, upstream, bug):
        self.upstream, self.bug = str(upstream), bug
        self.path = str(upstream) + ".planted"
        self.count, self.wedged = 0, False
        proxy = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                try:
                    proxy.exchange(self)
                except (OSError, http.client.HTTPException):
                    pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.server = Server(self.path, Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def exchange(self, handler):
        if self.wedged:
            time.sleep(600)
        line = handler.rfile.readline().decode("latin1").split()
        headers = http.client.parse_headers(handler.rfile)
        body = handler.rfile.read(int(headers.get("Content-Length", 0)))
        method, target = line[0], line[1]

        def forward(data=body):
            connection = UnixConnection(self.upstream, 70)
            kept = {k: v for k, v in headers.items() if k.lower() != "content-length"}
            connection.request(method, target, data or None, kept)
            answer = connection.getresponse()
            return answer.status, answer.read()

        submitting = method == "POST" and target == "/v1/jobs"
        if submitting:
            self.count += 1
        if submitting and self.bug == "ack_without_commit" and self.count % 5 == 0:
            status, data = 201, json.dumps({"job_id": f"{self.count:026d}", "state": "queued"}).encode()
        else:
            status, data = forward()
            if submitting and self.bug == "submit_twice" and self.count % 5 == 0:
                forward(json.dumps({**json.loads(body), "force_new": True}).encode())
        if self.bug == "corrupt_text" and "/result" in target and status == 200:
            page = json.loads(data)
            if page["text"]:
                page["text"] = page["text"][:-1] + chr(ord(page["text"][-1]) ^ 1)
            data = json.dumps(page).encode()
        if self.bug == "hide_faults" and b'"state":"incomplete"' in data.replace(b" ", b""):
            job = json.loads(data)
            job["state"], job["reason"] = "completed", None
            data = json.dumps(job).encode()
        if self.bug == "always_ready" and target == "/health":
            status, data = 200, json.dumps({**json.loads(data), "state": "ready", "reason": None, "degraded": []}).encode()
        if self.bug == "wedge_on_bad_input" and 400 <= status < 500:
            self.wedged = True
        handler.wfile.write(f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nConnection: close\r\n"
                            f"Content-Length: {len(data)}\r\n\r\n".encode() + data)


def door(daemon):
    """The socket that a harness's clients use: the daemon's own, or the planted proxy's."""
    return PlantingProxy(daemon.socket, PLANTED).path if PLANTED else daemon.socket
