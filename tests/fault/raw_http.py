"""HTTP by hand for the harnesses of this folder: exact bytes out, every byte back, over the Unix
socket or TCP. Nothing here forgives what an HTTP library would.
"""
import dataclasses
import json
import socket
import time

from harness import Daemon, wait_until


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


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


def rss_kib(pid):
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


def started(daemon, port):
    daemon.start()
    wait_until(lambda: (daemon.home / "api-key").exists(), 5, "the key is there")
    return Doors(daemon, port)
