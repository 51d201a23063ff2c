"""HTTP by hand for the harnesses of this folder: exact bytes out, every byte back, over the Unix
socket or TCP. Nothing here forgives what an HTTP library would.
"""
import dataclasses
import json
import multiprocessing
import socket
import time

from harness import Daemon, free_port, wait_until


class Doors:
    """A daemon's two doors: `unix`, and `tcp` with its key."""

    def __init__(self, daemon, port):
        self.daemon, self.port = daemon, port
        self.key = (daemon.home / "api-key").read_text().strip()

    def connect(self, door, timeout=5.0):
        if door == "unix":
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            s.settimeout(timeout)
            s.connect(str(self.daemon.socket))
        else:
            s = socket.socket()
            s.settimeout(timeout)
            s.connect(("127.0.0.1", self.port))
        return s

    def host(self, door):
        return f"127.0.0.1:{self.port}" if door == "tcp" else "localhost"


def with_tcp(*arguments, config=""):
    """A Daemon, not yet started, that also listens on a free port; and that port."""
    port = free_port()
    daemon = Daemon(*arguments, "--listen", f"127.0.0.1:{port}")
    if config:
        (daemon.home / "ponder.toml").write_text(config)
    return daemon, port


@dataclasses.dataclass
class Answer:
    status: int
    headers: dict  # names in lower case
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


def parse_answers(data):
    """All answers in `data`, and what is left over (b"" when it ends between two)."""
    answers = []
    while data:
        head, mark, rest = data.partition(b"\r\n\r\n")
        if not mark:
            return answers, data
        lines = head.decode("latin1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        status = int(lines[0].split()[1])
        if headers.get("transfer-encoding") == "chunked":
            body, rest = dechunk(rest)
            if body is None:
                return answers, data
        else:
            size = int(headers.get("content-length", 0))
            if len(rest) < size:
                return answers, data
            body, rest = rest[:size], rest[size:]
        if status != 100:
            answers.append(Answer(status, headers, body))
        data = rest
    return answers, b""


def dechunk(data):
    body = b""
    while True:
        line, mark, rest = data.partition(b"\r\n")
        if not mark:
            return None, data
        size = int(line, 16)
        if len(rest) < size + 2:
            return None, data
        body, data = body + rest[:size], rest[size + 2:]
        if size == 0:
            return body, data


def read_to_end(s, seconds):
    """All that comes until the peer closes (True) or `seconds` are over (False)."""
    data, end = b"", time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        if left <= 0:
            return data, False
        s.settimeout(left)
        try:
            more = s.recv(65536)
        except TimeoutError:
            return data, False
        except ConnectionResetError:
            return data, True
        if not more:
            return data, True
        data += more


def exchange(doors, door, data, seconds=5.0):
    """Sends `data` on a fresh connection; the answers, what is left over, and whether it was closed."""
    with doors.connect(door) as s:
        try:
            s.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused while it was still being sent
        received, closed = read_to_end(s, seconds)
    answers, rest = parse_answers(received)
    return answers, rest, closed


def one_answer(s, seconds=10.0):
    """Reads one whole answer from an open connection, or None."""
    data, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        s.settimeout(max(0.01, end - time.monotonic()))
        try:
            more = s.recv(65536)
        except (TimeoutError, ConnectionResetError):
            return None
        if not more:
            return None
        data += more
        answers, _ = parse_answers(data)
        if answers:
            return answers[0]
    return None


def request(line, *fields, body=b""):
    """A request as bytes; `fields` are whole header lines."""
    lines = [line.encode("latin1") if isinstance(line, str) else line]
    lines += [f.encode("latin1") if isinstance(f, str) else f for f in fields]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("inf")


def rss_kib(pid, field="VmRSS:"):
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith(field):
                return int(line.split()[1])
    return 0


def started(daemon, port):
    daemon.start()
    wait_until(lambda: (daemon.home / "api-key").exists(), 5, "the key is there")
    return Doors(daemon, port)


class Probe:
    """Good requests at a fixed rate, from a process of their own so that the harness's own work does
    not slow them. Each is timed from when it was due: a wait behind another counts in full."""

    def __init__(self, socket_path, target="/health", every_s=0.01):
        self.mine, its = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=self._run, args=(str(socket_path), target, every_s, its), daemon=True)
        self.took, self.failed = [], 0

    @staticmethod
    def _run(socket_path, target, every_s, pipe):
        data = request(f"GET {target} HTTP/1.1", "Host: localhost")
        took, failed, s, due = [], 0, None, time.monotonic()
        while not pipe.poll():
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if s is None:
                    s = socket.socket(socket.AF_UNIX)
                    s.connect(socket_path)
                s.sendall(data)
                answer = one_answer(s)
            except OSError:
                answer = None
            took.append(time.monotonic() - due)
            if answer is None or answer.status != 200:
                failed, s = failed + 1, None
            due += every_s
            if time.monotonic() > due + 1:  # what could not be sent is not sent later all at once
                due = time.monotonic()
        pipe.send((took, failed))

    def __enter__(self):
        self.process.start()
        return self

    def __exit__(self, *_):
        self.mine.send(None)
        self.took, self.failed = self.mine.recv()
        self.process.join()

    def p99(self):
        return percentile(self.took, 0.99)


class Memory:
    """The growth of a process's resident memory at its peak, over what it is when this is made."""

    def __init__(self, pid):
        self.pid, self.most = pid, 0
        self.before = rss_kib(pid)
        self.reset()

    def reset(self):
        with open(f"/proc/{self.pid}/clear_refs", "w") as f:
            f.write("5")  # VmHWM := VmRSS

    def look(self):
        """The peak since the last look, in KiB over `before`."""
        peak = rss_kib(self.pid, "VmHWM:") - self.before
        self.most = max(self.most, peak)
        self.reset()
        return peak
