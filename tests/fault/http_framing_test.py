#!/usr/bin/env python3
"""P21: framing is strict. Each ambiguous request, alone and with a good one right behind it, over
both doors: one 400 (415 for a compressed body), the connection closed, no second answer, no job.

Two parsers that disagree about where a request ends are a way to smuggle one past the other; so
what is spelt in two ways is refused here before anything is read out of it.

Planted: `accepts_both_lengths` stands between as a proxy that mends one kind of request;
`second_request` answers the request behind a refused one.
"""
import pathlib
import socketserver
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import PLANTED, check, finish, json, socket, time
import profile
import raw_http
from raw_http import request

JOB = json.dumps({"task": "smuggled", "force_new": True}).encode()
JSON = "Content-Type: application/json"
CLOSES_WITHIN_S = 1.0  # the peer is told at once; what is left in the pipe is read and dropped


def chunks(*parts, trailers=b""):
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n" + trailers + b"\r\n"


def ambiguous(host, key):
    """[(name, bytes)]; every one is refused as a whole."""
    cases = []
    auth = f"x-api-key: {key}"
    names = set()

    def add(name, line, *fields, body=b"", with_host=True):
        assert name not in names, name
        names.add(name)
        own = [f"Host: {host}"] if with_host else []
        cases.append((name, request(line, *own, auth, *fields, body=body)))

    def post(name, *fields, body=JOB):
        add(name, "POST /v1/jobs HTTP/1.1", JSON, *fields, body=body)

    length = f"Content-Length: {len(JOB)}"
    chunked = "Transfer-Encoding: chunked"
    whole = chunks(JOB)

    # boostorg/beast#3098, #3096: the order of the two lengths, and HTTP/1.0 with chunks.
    post("TE gzip before CL", "Transfer-Encoding: gzip", length)
    post("CL before TE gzip", length, "Transfer-Encoding: gzip")
    post("TE chunked before CL", chunked, length, body=whole)
    post("CL before TE chunked", length, chunked, body=whole)
    add("HTTP/1.0 with chunks", "POST /v1/jobs HTTP/1.0", JSON, chunked, body=whole)
    for coding in ("gzip", "gzip, chunked", "chunked, gzip", "identity", "chunked, chunked", "xchunked", "chunked;q=1",
                   '"chunked"', "", "chunked,", ",chunked", "Chunked", "CHUNKED", "chunked\x0b", "\x0bchunked", "chun ked"):
        post(f"TE {coding!r}", f"Transfer-Encoding: {coding}", body=whole)
    post("TE twice", chunked, chunked, body=whole)
    post("TE twice, one identity", "Transfer-Encoding: identity", chunked, body=whole)
    post("TE with a space before the colon", "Transfer-Encoding : chunked", body=whole)
    post("TE folded", "Transfer-Encoding:\r\n chunked", body=whole)
    post("TE with NUL", b"Transfer-Encoding: chunked\x00", body=whole)
    post("TE behind a bare CR", "X: y\rTransfer-Encoding: chunked", length)
    post("TE behind a bare LF", "X: y\nTransfer-Encoding: chunked", length)
    n = len(JOB)
    for text in (f"+{n}", f"-{n}", f"{n}, {n}", f"{n},", f"0x{n:x}", f"{n}.0", f"{n}e0", "", "one", f"{n} {n}", f"{n};",
                 "18446744073709551616", "99999999999999999999999999", f"{n}_0", f'"{n}"', f"{n}\x0c"):
        post(f"CL {text!r}", f"Content-Length: {text}")
    post("CL twice, equal", length, length)
    post("CL twice, different", length, "Content-Length: 0")
    post("CL with a space before the colon", f"Content-Length : {n}")
    post("CL folded", f"Content-Length:\r\n {n}")
    post("CL in other digits", b"Content-Length: \xd9\xa1")

    add("no Host", "GET /health HTTP/1.1", with_host=False)
    add("two Hosts", "GET /health HTTP/1.1", f"Host: {host}")
    for value in ("", "a b", "a,b", "user@a", "a/b", "http://a", "a\\b", "a?b", "a#b"):
        add(f"Host {value!r}", "GET /health HTTP/1.1", f"Host: {value}", with_host=False)

    for line in (f"GET http://{host}/health HTTP/1.1", "GET http:/health HTTP/1.1", "OPTIONS * HTTP/1.1", "GET * HTTP/1.1",
                 f"CONNECT {host} HTTP/1.1", "GET health HTTP/1.1", "GET /health", "GET /health HTTP/0.9", "GET /health HTTP/1.2",
                 "GET /health HTTP/2.0", "GET /health HTTP/2", "GET /health http/1.1", "GET /health HTTP/1.10", "GET /health HTTP/01.1",
                 "GET /health HTTP/1.1 ", "GET  /health HTTP/1.1", "GET\t/health\tHTTP/1.1", " GET /health HTTP/1.1",
                 "GET /health HTTP/1.1 HTTP/1.1", "GET /health\x00 HTTP/1.1", "GET /health\x7f HTTP/1.1", "GET /h\xe4 HTTP/1.1",
                 "GET /health#a HTTP/1.1", "GET /v1\\jobs HTTP/1.1", "GET /v1%2fjobs HTTP/1.1", "GET /v1%5Cjobs HTTP/1.1",
                 "GET /v1/jobs%00 HTTP/1.1", "GET /v1/%2e%2e/health HTTP/1.1", "GET /v1/../health HTTP/1.1", "GET /./health HTTP/1.1",
                 "GET /health/%2E HTTP/1.1", "GET /health% HTTP/1.1", "GET /health%4 HTTP/1.1", "GET /health?a=%zz HTTP/1.1",
                 "GET /v1/models/%0d%0ax HTTP/1.1", "GET /v1/models/%c0%ae%c0%ae HTTP/1.1", "GET /v1/models/%ff HTTP/1.1",
                 "G(T /health HTTP/1.1", "GE\x01T /health HTTP/1.1", " /health HTTP/1.1", "PRI * HTTP/2.0", ""):
        add(f"line {line!r}", line)

    add("a folded field", "GET /health HTTP/1.1", "X-A: b\r\n c")
    add("a field folded by a tab", "GET /health HTTP/1.1", "X-A: b\r\n\tc")
    add("a field without a colon", "GET /health HTTP/1.1", "nothing")
    add("a field without a name", "GET /health HTTP/1.1", ": x")
    add("a space in a name", "GET /health HTTP/1.1", "X A: b")
    add("a bracket in a name", "GET /health HTTP/1.1", "X(A: b")
    add("a high byte in a name", "GET /health HTTP/1.1", b"X\xe4: b")
    for byte in (0, 1, 8, 0x0b, 0x0c, 0x1b, 0x1f, 0x7f):
        add(f"byte {byte} in a value", "GET /health HTTP/1.1", b"X-A: b" + bytes([byte]) + b"c")
    add("lines that end in LF", "GET /health HTTP/1.1", "X: y\nZ: z")
    add("LF before CR", "GET /health HTTP/1.1", "X: y\n\rZ: z")
    cases.append(("only bare LF", b"GET /health HTTP/1.1\nHost: " + host.encode() + b"\n\n"))
    cases.append(("an empty line first", b"\r\n" + request("GET /health HTTP/1.1", f"Host: {host}")))
    add("65 fields", "GET /health HTTP/1.1", *[f"X-{i}: y" for i in range(63)])
    add("a header of over 16 KiB", "GET /health HTTP/1.1", "X: " + "y" * 16384)  # CVE-2025-48956
    add("a target of over 16 KiB", "GET /" + "y" * 16384 + " HTTP/1.1")

    for field in ("Content-Type: application/json", "Authorization: Bearer x", "x-api-key: y", "Expect: 100-continue",
                  "Origin: a", "Sec-Fetch-Site: none", "Content-Encoding: identity", "Last-Event-ID: 1"):
        twice = [field] if field.startswith("x-api-key") else [field, field]
        add(f"twice: {field}", "GET /health HTTP/1.1", *twice)
    for value in ("200-ok", "100-continue, 100-continue", ""):
        post(f"Expect {value!r}", length, f"Expect: {value}")
    # GHSA of cpp-httplib and Ollama's gzip: a limit that is held against the compressed size.
    for coding in ("gzip", "deflate", "br", "zstd", "gzip, identity", "x"):
        post(f"Content-Encoding {coding}", length, f"Content-Encoding: {coding}")

    def body(name, raw):
        post("chunks: " + name, chunked, body=raw)

    c = JOB
    for size in ("", "g", "-5", "+5", "0x5", " 5", "5 ", "\t5", "5\t", "1" * 17, "f" * 16, "5_", '"5"', "5,5", "5;", "5;;a", "5;=b", "5; a=b",
                 "5;a=", '5;a="b', "5;a\x01", "5;a\x7f", "5;" + "a" * 257):
        body(f"size {size[:24]!r}", f"{size}\r\n".encode("latin1") + c[:5] + b"\r\n" + chunks(c[5:]))
    body("size ends in LF", b"%x\n" % len(c) + c + b"\r\n0\r\n\r\n")
    body("size ends in CR", b"%x\r" % len(c) + c + b"\r\n0\r\n\r\n")
    body("data ends in LF", b"%x\r\n" % len(c) + c + b"\n0\r\n\r\n")
    body("data is longer than its size", b"%x\r\n" % (len(c) - 1) + c + b"\r\n0\r\n\r\n")
    body("data is shorter than its size", b"%x\r\n" % (len(c) + 1) + c + b"\r\n0\r\n\r\n")
    body("no CRLF behind data", b"%x\r\n" % len(c) + c + b"0\r\n\r\n")
    body("last chunk ends in LF", b"%x\r\n" % len(c) + c + b"\r\n0\n\r\n")
    body("last chunk with a long extension", b"%x\r\n" % len(c) + c + b"\r\n0;" + b"a" * 300 + b"\r\n\r\n")
    body("last chunk 00 with a space", b"%x\r\n" % len(c) + c + b"\r\n00 \r\n\r\n")
    body("trailing LF only", b"%x\r\n" % len(c) + c + b"\r\n0\r\n\n")
    for trailer in ("Content-Length: 5", "Transfer-Encoding: chunked", f"Host: {host}", f"x-api-key: {key}", "Authorization: Bearer x",
                    "Content-Type: text/plain", "Content-Encoding: gzip", "Expect: 100-continue", "X: a\r\n b", "X : a", "nothing",
                    ": x", "X: a\nY: b", "X: a\x00", "X: a\rY: b"):
        body(f"trailer {trailer!r}", chunks(c, trailers=trailer.encode("latin1") + b"\r\n"))
    body("65 trailers", chunks(c, trailers=b"".join(b"X-%d: y\r\n" % i for i in range(65))))
    body("trailers of over 16 KiB", chunks(c, trailers=b"X: " + b"y" * 16384 + b"\r\n"))
    return cases


class MendingProxy:
    """On a Unix socket: takes Content-Length out of requests that also carry Transfer-Encoding, as
    a proxy does that means well; or, as `second_request`, sends what follows a refused request on."""

    def __init__(self, upstream, bug):
        self.path = str(upstream) + ".planted"

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                self.request.settimeout(0.2)
                data = b""
                try:
                    while chunk := self.request.recv(65536):
                        data += chunk
                except TimeoutError:
                    pass
                self.request.sendall(forward(data))

        def forward(data):
            if bug == "accepts_both_lengths" and b"Transfer-Encoding: chunked\r\n" in data:
                head, mark, rest = data.partition(b"\r\n\r\n")
                lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length:")]
                data = b"\r\n".join(lines) + mark + rest
            answer = ask(data)
            behind = data.rfind(b"GET /v1/models ")
            if bug == "second_request" and behind > 0 and b" 400 " in answer[:20]:
                answer += ask(data[behind:])
            return answer

        def ask(data):
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(str(upstream))
                try:
                    s.sendall(data)
                except OSError:
                    pass
                return raw_http.read_to_end(s, 0.3)[0]

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

        self.server = Server(self.path, Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def main():
    daemon, port = raw_http.with_tcp("--engine", "stub")
    with daemon:
        doors = raw_http.started(daemon, port)
        if PLANTED:
            daemon.socket = pathlib.Path(MendingProxy(daemon.socket, PLANTED).path)
        refused = second = open_left = tried = 0
        kinds = 0
        slowest = 0.0
        for door in ("unix",) if PLANTED else ("unix", "tcp"):
            host = doors.host(door)
            good = request("GET /v1/models HTTP/1.1", f"Host: {host}", f"x-api-key: {doors.key}")
            cases = ambiguous(host, doors.key)
            if PLANTED:
                wanted = "TE chunked before CL" if PLANTED == "accepts_both_lengths" else "TE 'gzip'"
                cases = [case for case in cases if case[0] == wanted]
            kinds = max(kinds, len(cases))
            for name, data in cases:
                for behind in (b"", good):
                    tried += 1
                    began = time.monotonic()
                    answers, rest, closed = raw_http.exchange(doors, door, data + behind, 3 if PLANTED else 2)
                    took = time.monotonic() - began
                    slowest = max(slowest, took)
                    what = f"{name}{' before a good request' if behind else ''} over {door}"
                    wanted = 415 if name.startswith("Content-Encoding") else 400
                    told = [a.status for a in answers]
                    if check(told[:1] == [wanted], f"{what}: answered {told}, wanted {wanted}") and \
                            check(answers[0].headers.get("connection") == "close", f"{what}: the refusal says close"):
                        refused += 1
                    if not check(len(answers) <= 1 and not rest, f"{what}: a second answer: {told} {rest[:60]!r}"):
                        second += 1
                    if not PLANTED and not check(closed and took < CLOSES_WITHIN_S, f"{what}: closed at once, took {took:.2f} s"):
                        open_left += 1
        made = daemon.call("GET", "/v1/jobs", headers={"Connection": "close"}).json["jobs"] if not PLANTED else []
        check(not made, f"no refused request made a job: {len(made)}")
        if not PLANTED:
            legal(doors)
        profile.figure("P21", "kinds of ambiguous requests, each alone and before a good one, over both doors", kinds, ">= 60")
        profile.figure("P21", "refused with 400 (415) and closed, of all", f"{refused} of {tried}", "all")
        profile.figure("P21", "second answers; connections left open", f"{second}; {open_left}", "0; 0")
        check(kinds >= 60 or PLANTED, f"{kinds} kinds")
    finish("http framing")


def legal(doors):
    """The other side of strictness: what clients rightly send is served, also several in a row."""
    for door in ("unix", "tcp"):
        host, key = f"Host: {doors.host(door)}", f"Authorization: Bearer {doors.key}"
        body = json.dumps({"task": "legal [[stub tokens=2]]", "force_new": True}).encode()
        post = "POST /v1/jobs HTTP/1.1"
        length = f"Content-Length: {len(body)}"
        chunked = "Transfer-Encoding: chunked"
        for name, data, wanted in (
                ("one length", request(post, host, key, JSON, length, body=body), [201]),
                ("blanks around values", request(post, host, key, "Content-Type:  application/json\t", f"Content-Length:\t{len(body)} ",
                                                 body=body), [201]),
                ("one chunk", request(post, host, key, JSON, chunked, body=chunks(body)), [201]),
                ("a chunk a byte", request(post, host, key, JSON, chunked, body=chunks(*[bytes([b]) for b in body])), [201]),
                ("capital digits and zeros", request(post, host, key, JSON, chunked, body=b"000%X\r\n" % len(body) + body + b"\r\n000\r\n\r\n"), [201]),
                ("an extension", request(post, host, key, JSON, chunked, body=b"%x;a=b;c=\"d e\"\r\n" % len(body) + body + b"\r\n0;e\r\n\r\n"), [201]),
                ("a trailer", request(post, host, key, JSON, chunked, body=chunks(body, trailers=b"X-Sum: 1\r\n")), [201]),
                ("three in a row", request(post, host, key, JSON, chunked, body=chunks(body)) +
                 request("GET /v1/jobs HTTP/1.1", host, key) +
                 request(post, host, key, JSON, length, "Connection: close", body=body), [201, 200, 201]),
                ("64 fields", request("GET /v1/jobs HTTP/1.1", host, key, "Connection: close", *[f"X-{i}: y" for i in range(61)]), [200])):
            answers, rest, _ = raw_http.exchange(doors, door, data, 0.3 if b"close" not in data else 2)
            check([a.status for a in answers] == wanted and not rest,
                  f"legal: {name} over {door}: {[a.status for a in answers]} {answers[-1].body[:200] if answers else rest[:100]}")


main()
