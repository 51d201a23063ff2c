#!/usr/bin/env python3
"""P20: a web page cannot drive it. The whole product Host x Origin x Sec-Fetch-Site x Content-Type x
method x key over TCP: outside the allowed cells nothing is made and no body tells anything; no
answer carries a CORS header. Then the names that DNS rebinding would use, an address that is not
loopback, and a peer of another user on the Unix socket.

Planted: `trusting_proxy` puts the right Host in, drops what the browser said about itself and
shows the key, as a proxy in front of the daemon that trusts everyone would.
"""
import itertools
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import BIN, PLANTED, Daemon, check, finish, json, socket, socketserver, threading, wait_until
import profile
import raw_http
from raw_http import request

ABSENT = None
# What a page may show at most: the error's own words. Any other field would be a readable body.
BARE_FIELDS = {"error", "state"}


def matrix(port):
    hosts = [f"127.0.0.1:{port}", "evil.example", f"evil.example:{port}"]
    origins = [ABSENT, "http://evil.example", "null", f"http://127.0.0.1:{port}"]
    sites = [ABSENT, "none", "same-origin", "same-site", "cross-site"]
    types = [ABSENT, "application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
    methods = ["GET", "POST", "OPTIONS", "DELETE"]
    keys = [ABSENT, "wrong", "right"]
    return itertools.product(hosts, origins, sites, types, methods, keys)


def allowed(cell, port):
    """The cells in which the daemon does what is asked: ours by name, no page, the right key."""
    host, origin, site, media, method, key = cell
    return (host == f"127.0.0.1:{port}" and origin is ABSENT and site in (ABSENT, "none", "same-origin") and key == "right"
            and (method in ("GET", "DELETE") or (method == "POST" and media == "application/json")))


def bytes_of(cell, doors, target_id):
    host, origin, site, media, method, key = cell
    fields = [f"Host: {host}"]
    for name, value in (("Origin", origin), ("Sec-Fetch-Site", site), ("Content-Type", media)):
        if value is not ABSENT:
            fields.append(f"{name}: {value}")
    if key is not ABSENT:
        fields.append(f"Authorization: Bearer {doors.key if key == 'right' else 'x' * 64}")
    body = b""
    if method == "POST":
        body = json.dumps({"task": "from a page", "label": "matrix", "force_new": True}).encode()
        fields.append(f"Content-Length: {len(body)}")
    if method == "OPTIONS":
        fields.append("Access-Control-Request-Method: POST")
    target = f"/v1/jobs/{target_id}" if method == "DELETE" else "/v1/jobs"
    return request(f"{method} {target} HTTP/1.1", *fields, "Connection: close", body=body)


def tells_nothing(answer):
    if not answer.body:
        return True
    try:
        return set(answer.json) <= BARE_FIELDS
    except ValueError:
        return False


class TrustingProxy:
    """On TCP, before the daemon: what it passes on looks as if the owner had sent it."""

    def __init__(self, doors):
        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                self.request.settimeout(0.05)
                data = b""
                try:
                    while more := self.request.recv(65536):
                        data += more
                except TimeoutError:
                    pass
                head, mark, body = data.partition(b"\r\n\r\n")
                drop = (b"host:", b"origin:", b"sec-fetch-site:", b"authorization:")
                lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(drop)]
                lines[1:1] = [f"Host: 127.0.0.1:{doors.port}".encode(), f"Authorization: Bearer {doors.key}".encode()]
                with socket.create_connection(("127.0.0.1", doors.port)) as s:
                    s.sendall(b"\r\n".join(lines) + mark + body)
                    self.request.sendall(raw_http.read_to_end(s, 2)[0])

        class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
            daemon_threads = True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def count_jobs(daemon):
    return len(daemon.all_jobs())


def walk_matrix(daemon, doors, door_port):
    """Cells that are not allowed first, so that whatever they make or take away is seen."""
    kept = daemon.submit("kept [[stub tokens=2]]", pin=True).json["job_id"]
    daemon.wait_terminal(kept)
    cells = list(matrix(doors.port))
    refused = [cell for cell in cells if not allowed(cell, doors.port)]
    if PLANTED:
        refused = [c for c in refused if c[4] == "POST" and c[3] == "application/json"][:20]
    readable = cors = effects = 0
    for cell in refused:
        with socket.create_connection(("127.0.0.1", door_port)) as s:
            s.sendall(bytes_of(cell, doors, kept))
            answers, _ = raw_http.parse_answers(raw_http.read_to_end(s, 5)[0])
        if not check(len(answers) == 1 and 400 <= answers[0].status < 500, f"{cell}: refused, got {[a.status for a in answers]}"):
            continue
        if not check(tells_nothing(answers[0]), f"{cell}: nothing to read: {answers[0].body[:120]}"):
            readable += 1
        if not check(not any(n.startswith("access-control") for n in answers[0].headers), f"{cell}: a CORS header"):
            cors += 1
    for job in daemon.all_jobs():
        if not check(job["job_id"] == kept, f"a refused cell made the job {job['job_id']} ({job['label']})"):
            effects += 1
    if not check(daemon.job(kept)["state"] == "completed", "a refused cell took a job away"):
        effects += 1
    if PLANTED:
        return
    served = [cell for cell in cells if allowed(cell, doors.port)]
    for cell in served:
        with socket.create_connection(("127.0.0.1", door_port)) as s:
            s.sendall(bytes_of(cell, doors, kept if cell[4] != "DELETE" else "0" * 26))
            answers, _ = raw_http.parse_answers(raw_http.read_to_end(s, 5)[0])
        wanted = {"GET": 200, "POST": 201, "DELETE": 404}[cell[4]]
        check([a.status for a in answers] == [wanted], f"{cell}: served with {wanted}, got {[a.status for a in answers]}")
        if not check(not any(n.startswith("access-control") for a in answers for n in a.headers), f"{cell}: a CORS header"):
            cors += 1
    profile.figure("P20", "cells of the access matrix (allowed among them)", f"{len(cells)} ({len(served)})", ">= 300")
    profile.figure("P20", "side effects; readable bodies outside the allowed cells; CORS headers", f"{effects}; {readable}; {cors}", "0; 0; 0")


def browser_tricks(daemon, doors):
    """GHSA-jhvf-7c85-3c9g and its kind: what a page can send without asking first."""
    before = count_jobs(daemon)
    host = f"Host: 127.0.0.1:{doors.port}"
    body = b'{"task": "from a page"}'
    length = f"Content-Length: {len(body)}"
    form = b"task=from+a+page"
    page = ("Origin: http://evil.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors")
    tricks = {
        "a form": request("POST /v1/jobs HTTP/1.1", host, "Content-Type: application/x-www-form-urlencoded",
                          f"Content-Length: {len(form)}", body=form),
        "text/plain": request("POST /v1/jobs HTTP/1.1", host, "Content-Type: text/plain", length, *page, body=body),
        "a beacon": request("POST /v1/jobs HTTP/1.1", host, "Content-Type: text/plain;charset=UTF-8", length, *page, body=body),
        "fetch without cors": request("POST /v1/chat/completions HTTP/1.1", host, length, *page, body=body),
        "json with a charset trick": request("POST /v1/jobs HTTP/1.1", host, "Content-Type: text/plain; application/json", length, body=body),
        "json in utf-7": request("POST /v1/jobs HTTP/1.1", host, "Content-Type: application/json; charset=utf-7", length, body=body),
        "an image": request("GET /v1/jobs HTTP/1.1", host, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: image"),
        "a script": request("GET /v1/jobs HTTP/1.1", host, "Sec-Fetch-Site: same-site", "Sec-Fetch-Dest: script"),
        "a preflight": request("OPTIONS /v1/jobs HTTP/1.1", host, "Origin: http://evil.example", "Access-Control-Request-Method: POST",
                               "Access-Control-Request-Private-Network: true"),
        "a websocket": request("GET /v1/jobs HTTP/1.1", host, "Origin: http://evil.example", "Upgrade: websocket", "Connection: Upgrade"),
        "key in the query": request(f"GET /v1/jobs?key={doors.key}&api_key={doors.key} HTTP/1.1", host),
        "key as basic": request("GET /v1/jobs HTTP/1.1", host, f"Authorization: Basic {doors.key}"),
        "key in a cookie": request("GET /v1/jobs HTTP/1.1", host, f"Cookie: key={doors.key}"),
        "method override": request("GET /v1/jobs HTTP/1.1", host, "X-HTTP-Method-Override: POST"),
    }
    for name, data in tricks.items():
        answers, _, _ = raw_http.exchange(doors, "tcp", data, 0.5)
        check(len(answers) == 1 and 400 <= answers[0].status < 500 and tells_nothing(answers[0]),
              f"{name}: refused without a word, got {[(a.status, a.body[:80]) for a in answers]}")
        check(not any(n.startswith("access-control") for a in answers for n in a.headers), f"{name}: a CORS header")
    check(count_jobs(daemon) == before, "no trick made a job")


def hosts(doors):
    """GHSA-5jx5-hqx5-2vrj: an exact list. Stricter than lists with *.local and private addresses."""
    port = doors.port
    ours = [f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", f"LocalHost:{port}"]
    foreign = ["127.0.0.1", "localhost", "[::1]", "::1", f"::1:{port}", f"127.0.0.1:{port + 1}", "localhost:80", "127.0.0.1:7663",
               f"127.0.0.1:0{port}", f"127.0.0.1:+{port}", f"127.0.0.2:{port}", f"127.1:{port}", f"2130706433:{port}", f"0x7f000001:{port}",
               f"017700000001:{port}", f"0.0.0.0:{port}", f"0:{port}", f"[::]:{port}", f"[::ffff:127.0.0.1]:{port}",
               f"[0:0:0:0:0:0:0:1]:{port}", f"[::1%lo]:{port}", f"localhost.:{port}", f"localhost.evil.example:{port}",
               f"evil.example:{port}", "evil.example", f"127.0.0.1.evil.example:{port}", f"127.0.0.1.nip.io:{port}",
               f"foo.localhost:{port}", f"user@127.0.0.1:{port}", f"127.0.0.1:{port}@evil", f"127.0.0.1:{port}/", f"127.0.0.1:{port},evil",
               f"http://127.0.0.1:{port}", f"ponder.local:{port}", f"ponder.internal:{port}", f"192.168.0.1:{port}", f"10.0.0.1:{port}",
               f"host.docker.internal:{port}", "", f":{port}", "*", f"xn--localhost:{port}"]
    wrong = 0
    for host, wanted in [(h, True) for h in ours] + [(h, False) for h in foreign]:
        for target in ("/v1/models", "/health"):
            data = request(f"GET {target} HTTP/1.1", f"Host: {host}", f"x-api-key: {doors.key}", "Connection: close")
            answers, _, _ = raw_http.exchange(doors, "tcp", data)
            served = len(answers) == 1 and answers[0].status == 200
            if not check(served == wanted and (served or answers[0].status == 400), f"Host {host!r} of {target}: {[a.status for a in answers]}"):
                wrong += 1
            check(served or tells_nothing(answers[0]), f"Host {host!r}: its refusal tells nothing")
    profile.figure("P20", "Host values tried; judged wrong", f"{len(ours) + len(foreign)}; {wrong}", ">= 40; 0")


def own_address():
    """An address of this machine that is not loopback, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))  # sends nothing
            address = s.getsockname()[0]
        except OSError:
            return None
    return None if address.startswith("127.") else address


def other_addresses():
    """What is not loopback wants the key as well, and a key worth the name before it starts."""
    address = own_address()
    for where in filter(None, ("0.0.0.0", address)):
        port = raw_http.free_port()
        with Daemon("--engine", "stub", "--listen", f"{where}:{port}") as daemon:
            daemon.start()
            key = (daemon.home / "api-key").read_text().strip()
            check(len(key) >= 32, f"the key that is made has at least 128 bits: {len(key)} characters")
            to = address if where != "0.0.0.0" and address else "127.0.0.1"
            for shown, wanted in ((None, 401), ("", 401), ("x" * len(key), 401), (key[:-1], 401), (key, 200)):
                fields = [] if shown is None else [f"Authorization: Bearer {shown}"]
                with socket.create_connection((to, port), 5) as s:
                    s.sendall(request("GET /v1/jobs HTTP/1.1", f"Host: {to}:{port}", *fields, "Connection: close"))
                    answers, _ = raw_http.parse_answers(raw_http.read_to_end(s, 5)[0])
                check([a.status for a in answers] == [wanted], f"{where} with the key {str(shown)[:8]!r}: {[a.status for a in answers]}, wanted {wanted}")
            check(listening(daemon.process.pid) == {port}, f"it listens where it was told and nowhere else: {listening(daemon.process.pid)}")
    for text in ("", "short", "x" * 31):
        with Daemon("--engine", "stub", "--listen", f"0.0.0.0:{raw_http.free_port()}") as daemon:
            (daemon.home / "api-key").write_text(text)
            (daemon.home / "api-key").chmod(0o600)
            done = subprocess.run([BIN / "ponderd", "--home", daemon.home, *daemon.arguments], capture_output=True, text=True, timeout=20)
            check(done.returncode == 1 and "api-key" in done.stderr and (not text or text not in done.stderr),
                  f"a key of {len(text)} characters: no start, got {done.returncode} {done.stderr[:200]!r}")


def listening(pid):
    """The TCP ports that a process listens on, from the kernel's own tables."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports


def another_user(daemon):
    """The socket's directory keeps others out; and where it does not, the peer's uid does."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        print("another user: not root, or no setpriv; only the modes are looked at")
        mode = daemon.home.stat().st_mode & 0o777
        check(mode == 0o700 and (daemon.socket.stat().st_mode & 0o777) == 0o600, f"home {mode:o}, socket 0600")
        return
    script = ("import socket,sys\ns=socket.socket(socket.AF_UNIX); s.settimeout(5)\n"
              "try:\n s.connect(sys.argv[1]); s.sendall(b'GET /v1/jobs HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'); d=s.recv(100)\n"
              "except ConnectionResetError: d=b''\n"
              "except BrokenPipeError: d=b''\n"
              "except PermissionError: d=b'denied'\n"
              "print(repr(d))")
    run = lambda: subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", script, daemon.socket],
                                 capture_output=True, text=True, timeout=20)
    check(run().stdout.strip() == "b'denied'", f"another user cannot reach the socket: {run()}")
    daemon.home.chmod(0o755)
    daemon.socket.chmod(0o666)
    answer = run()
    check(answer.returncode == 0 and answer.stdout.strip() == "b''",
          f"a peer of another user is turned away by its uid: {answer.stdout!r} {answer.stderr[-200:]!r}")
    daemon.socket.chmod(0o600)
    daemon.home.chmod(0o700)
    check(daemon.call("GET", "/v1/jobs").status == 200, "the owner is served as before")


def main():
    daemon, port = raw_http.with_tcp("--engine", "stub")
    with daemon:
        doors = raw_http.started(daemon, port)
        walk_matrix(daemon, doors, TrustingProxy(doors).port if PLANTED else port)
        if not PLANTED:
            browser_tricks(daemon, doors)
            hosts(doors)
            another_user(daemon)
    if not PLANTED:
        other_addresses()
    finish("http access")


main()
