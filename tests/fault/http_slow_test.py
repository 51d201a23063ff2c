#!/usr/bin/env python3
"""P22: slow peers cost nothing. Headers and bodies that come a byte at a time, and readers of event
streams that never read, all at once; beside them good requests at a fixed rate.

Held: each slow peer is closed when its setting says, +-1 s; the daemon keeps at most 1 MiB for each;
a good request's p99 stays within twice the idle one; the job whose readers do not read finishes as
fast as one that nobody looks at; and a full house of strangers does not keep the owner out.

Planted: `patient`, a daemon whose timeouts are an hour.
"""
import fcntl
import multiprocessing
import pathlib
import select
import struct
import sys
import termios

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import PLANTED, check, finish, json, socket, time, wait_until
import profile
import raw_http
from raw_http import Probe, request, rss_kib

HEADER_S, BODY_S, WRITE_S = profile.size((2, 3, 4), (10, 15, 30))
HEADERS, BODIES, READERS = profile.size((20, 10, 10), (500, 200, 200))
SLACK_S = 1.0
DRIP_S = 0.25
# Twice almost nothing is scheduling noise: on two cores a request that takes 0.3 ms idle now and then
# waits for a time slice of another process (4 ms here).
NOISE_FLOOR_S = 0.005
KIB_EACH = 1024
# 8 MB of text: far more than a socket's buffers and the stream's own bound together. In full at 400 KB
# a second, a thousand times what a model writes: 4 MB a second to 200 readers would be a test of the
# machine's copying.
JOB = "[[stub tokens={n} think=0 rate={rate} text={word}]]".format(n=8000, rate=profile.size(4000, 400), word="w" * 1000)


def unsent_by(port):
    """By the client's port, what the kernel holds of the daemon's side of each TCP connection."""
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[2].rsplit(":", 1)[1], 16): int(row[4].split(":")[0], 16) for row in rows if row[1].endswith(f":{port:04X}")}


def taken(s, unsent):
    """The bytes of the daemon's that the kernel has taken for this reader: on both sides of the socket."""
    waiting = struct.unpack("i", fcntl.ioctl(s, termios.FIONREAD, b"\0" * 4))[0]
    return waiting + (unsent.get(s.getsockname()[1], 0) if s.family == socket.AF_INET else 0)


def slow_peers(port, socket_path, key, job_id, pipe):
    """Runs in a process of its own, so that its work does not slow the probes. Sends, for each kind,
    how long its connections lived, a reader's from the last byte that its socket took: [seconds]
    with None for one that was never closed."""
    host = f"Host: 127.0.0.1:{port}"
    poller = select.epoll()
    peers = {}  # fd -> [socket, kind, drip or None, began, took, bytes that wait in the socket]

    def open_peer(kind, first, drip, tcp):
        if tcp:
            s = socket.create_connection(("127.0.0.1", port))
        else:
            s = socket.socket(socket.AF_UNIX)
            s.connect(socket_path)
        s.setblocking(False)
        s.send(first)
        peers[s.fileno()] = [s, kind, drip, time.monotonic(), None, 0]
        # Without EPOLLIN: what these peers are sent stays in the kernel.
        poller.register(s.fileno(), select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR)

    body_head = request("POST /v1/jobs HTTP/1.1", host, f"x-api-key: {key}", "Content-Type: application/json", "Content-Length: 100000")
    events = request(f"GET /v1/jobs/{job_id}/events?after=0 HTTP/1.1", host, f"x-api-key: {key}")
    for i in range(HEADERS):
        open_peer("header", b"G", b"E", i % 2 == 0)
    for i in range(BODIES):
        open_peer("body", body_head + b"{", b" ", i % 2 == 0)
    pipe.send("dripping")
    pipe.recv()  # what those cost has been seen
    for i in range(READERS):
        open_peer("reader", events, None, i % 2 == 0)
    pipe.send("open")
    end = time.monotonic() + (HEADER_S + 2 if PLANTED else max(HEADER_S, BODY_S, WRITE_S) + 10)
    next_drip = time.monotonic() + DRIP_S
    open_fds = set(peers)
    while open_fds and time.monotonic() < end:
        for fd, _ in poller.poll(max(0.0, next_drip - time.monotonic())):
            peer = peers[fd]
            if peer[4] is None:
                peer[4] = time.monotonic() - peer[3]
                open_fds.discard(fd)
                poller.unregister(fd)
        if time.monotonic() >= next_drip:
            next_drip += DRIP_S
            unsent = unsent_by(port)
            for fd in open_fds:
                waiting = 0 if peers[fd][2] else taken(peers[fd][0], unsent)
                if waiting != peers[fd][5]:
                    peers[fd][3], peers[fd][5] = time.monotonic(), waiting
                if peers[fd][2]:
                    try:
                        peers[fd][0].send(peers[fd][2])
                    except OSError:
                        pass  # closed; the poll says it
    pipe.send({kind: [p[4] for p in peers.values() if p[1] == kind] for kind in ("header", "body", "reader")})


def run_job(daemon):
    began = time.monotonic()
    job_id = daemon.submit(JOB, force_new=True, effort="none").json["job_id"]
    job = daemon.wait_terminal(job_id, 60)
    check(job["state"] == "completed", f"the job completes: {job['state']}({job['reason']})")
    return job["run_s"], time.monotonic() - began


def closed_in_time(kind, lives, bound_s):
    """Whether each lived until its bound, give or take, and not longer."""
    earliest, latest = bound_s - SLACK_S, bound_s + SLACK_S
    late = [t for t in lives if t is None or not earliest <= t <= latest]
    check(not late, f"{kind}: {len(late)} of {len(lives)} were not closed within {earliest:.0f} to {latest:.0f} s: {late[:5]}")
    known = [t for t in lives if t is not None]
    return f"{min(known):.1f} to {max(known):.1f} s" if known else "never"


def attack(daemon, doors):
    alone_s, _ = run_job(daemon)
    with Probe(daemon.socket) as idle:
        time.sleep(0.5 if PLANTED else profile.size(2, 10))
    before = rss_kib(daemon.process.pid)
    job_id = daemon.submit(JOB, force_new=True, effort="none").json["job_id"]
    mine, its = multiprocessing.Pipe()
    attackers = multiprocessing.get_context("fork").Process(
        target=slow_peers, args=(doors.port, str(daemon.socket), doors.key, job_id, its))
    attackers.start()
    mine.recv()
    time.sleep(0.2)
    dripping = rss_kib(daemon.process.pid)
    mine.send("seen")
    mine.recv()
    peak = [dripping]
    with Probe(daemon.socket) as loaded:
        job = daemon.wait_terminal(job_id, 60)
        while not mine.poll(0.1):
            peak.append(rss_kib(daemon.process.pid))
        lives = mine.recv()
    attackers.join()
    told = {kind: closed_in_time(kind, lives[kind], bound)
            for kind, bound in (("header", HEADER_S), ("body", BODY_S), ("reader", WRITE_S))}
    peers = HEADERS + BODIES + READERS
    for kind, bound in (("header", HEADER_S), ("body", BODY_S), ("reader", WRITE_S)):
        profile.figure("P22", f"{len(lives[kind])} slow peers ({kind}) closed after", told[kind], f"{bound} s +-1 s")
    calm, busy = idle.p99(), loaded.p99()
    check(idle.failed == 0 and loaded.failed == 0, f"good requests fail: {idle.failed} and {loaded.failed}")
    check(busy <= 2 * max(calm, NOISE_FLOOR_S), f"good p99 {busy * 1000:.1f} ms beside slow peers, idle {calm * 1000:.1f} ms")
    profile.figure("P22", f"good p99 beside {peers} slow peers, and idle", f"{busy * 1000:.2f} ms, {calm * 1000:.2f} ms", "<= 2x idle (5 ms at least)")
    # The drips hold next to nothing and are most of the peers: what a reader costs is seen apart.
    for kind, each in ((f"of {HEADERS + BODIES} drips", (dripping - before) / (HEADERS + BODIES)),
                       (f"of {READERS} readers that never read", (max(peak) - dripping) / READERS)):
        check(each <= KIB_EACH, f"{each:.0f} KiB for each {kind}")
        profile.figure("P22", f"memory of the daemon for each {kind}", f"{each:.0f} KiB", "<= 1 MiB")
    check(job["state"] == "completed" and job["run_s"] <= alone_s * 1.25 + 0.1,
          f"the job of readers that do not read: {job['state']} in {job['run_s']} s, alone {alone_s} s")
    profile.figure("P22", f"run time of a job with {READERS} readers that never read, and alone", f"{job['run_s']:.2f} s, {alone_s:.2f} s", "<= 1.25x")


def chat_readers_that_do_not_read(daemon, doors):
    """A chat turn is its connection: the turn of a client that reads nothing ends, others go on."""
    body = json.dumps({"stream": True, "reasoning_effort": "none", "messages": [{"role": "user", "content": JOB}]}).encode()
    data = request("POST /v1/chat/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}", body=body)
    sockets = [doors.connect("unix") for _ in range(2)]
    for s in sockets:
        s.sendall(data)
    began = time.monotonic()
    poller = select.poll()
    for s in sockets:
        poller.register(s, select.POLLRDHUP | select.POLLHUP)
    gone = wait_until(lambda: len(poller.poll(50)) == 2, WRITE_S + 3, "chat clients that do not read are dropped")
    if gone:
        profile.figure("P22", "chat readers that never read dropped after", f"{time.monotonic() - began:.1f} s", f"<= {WRITE_S + 1} s")
    idle = wait_until(lambda: daemon.call("GET", "/health").json["queue"]["running"] == 0, 3, "their turns have ended with them")
    check(idle, "no turn runs on for nobody")


def full_house(daemon, doors, most):
    """Strangers without the key fill every place that TCP has: the owner's socket still answers."""
    held = []
    for _ in range(most + 20):
        try:
            held.append(doors.connect("tcp", 2))
        except OSError:
            break
    time.sleep(0.2)
    try:
        began = time.monotonic()
        status = daemon.call("GET", "/v1/jobs", timeout=5).status
        check(status == 200, f"with {len(held)} strangers on TCP the owner's socket answers {status}")
        profile.figure("P22", f"the owner's request beside {len(held)} strangers on TCP", f"{status} in {(time.monotonic() - began) * 1000:.0f} ms", "200")
    except OSError as error:
        check(False, f"with {len(held)} strangers on TCP the owner's socket answers: {error}")
    for s in held:
        s.close()


def main():
    header, body, write = (3600, 3600, 3600) if PLANTED == "patient" else (HEADER_S, BODY_S, WRITE_S)
    config = f"header_timeout_s = {header}.0\nbody_timeout_s = {body}.0\nwrite_timeout_s = {write}.0\n"
    daemon, port = raw_http.with_tcp("--engine", "stub", config=config)
    with daemon:
        doors = raw_http.started(daemon, port)
        attack(daemon, doors)
        if not PLANTED:
            chat_readers_that_do_not_read(daemon, doors)
    if not PLANTED:
        daemon, port = raw_http.with_tcp("--engine", "stub", config="max_connections = 100\n")
        with daemon:
            full_house(daemon, raw_http.started(daemon, port), 100)
    finish("slow peers")


main()
