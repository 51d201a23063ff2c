"""`ponder pull` against a small server: whole and right files only, going on after a cut, clear refusals.

    pull_test.py BIN_DIR
"""
import hashlib
import http.server
import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile
import threading

from harness import BIN, check, finish

BODY = b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + bytes(range(256)) * 4000  # no values, no tensors
MODEL = (pathlib.Path(__file__).resolve().parents[1] / "golden" / "archs" / "llama.gguf").read_bytes()
SHA = hashlib.sha256(BODY).hexdigest()
served = {"cut_at": None, "version": '"1"', "ranges": [], "tokens": [], "truth": True}


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, with_body):
        path = self.path.split("?")[0]
        served["tokens"].append(self.headers.get("Authorization"))
        if path.startswith("/owner/repo/resolve/main/"):  # as a hub redirects to its store
            self.send_response(302)
            self.send_header("Location", "/store/m.gguf")
            self.send_header("X-Linked-Etag", f'"{SHA}"')
            self.send_header("X-Linked-Size", str(len(BODY)))
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if path not in ("/store/m.gguf", "/plain/m.gguf", "/html/m.gguf", "/plain/part-00001-of-00002.gguf",
                        "/plain/part-00002-of-00002.gguf") and not path.startswith("/short/"):
            self.send_error(403 if "secret" in path else 404)
            return None
        cut = re.fullmatch(r"/short/(\d+)/.*", path)  # whole for the server: it holds no more of it
        body = b"<html>sorry</html>" if path.startswith("/html") else MODEL[:int(cut.group(1))] if cut else BODY
        first = 0
        if with_body:
            asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            first = int(asked.group(1)) if asked else 0
            served["ranges"].append(first)
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - first))
        self.send_header("ETag", served["version"])
        self.end_headers()
        if with_body:
            end = len(body) if served["cut_at"] is None else served["cut_at"]
            self.wfile.write(body[first:end])
            self.close_connection = True
        return None


def pull(home, *words, **env):
    done = subprocess.run([BIN / "ponder", "--home", home, "pull", *words], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, env={**os.environ, **env})
    return done


def is_exit(done, code, *words):
    check(done.returncode == code, f"exit {code}: {done}")
    for word in words:
        check(word in done.stderr + done.stdout, f"it says {word!r}: {done}")
    return done


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    with tempfile.TemporaryDirectory(prefix="ponder-pull-") as top:
        home = pathlib.Path(top) / "home"
        models = home / "models"

        done = is_exit(pull(home, "hf:owner/repo/m.gguf", HF_ENDPOINT=url, HF_TOKEN="secret-token"), 0, "ponder.toml")
        check(done.stdout == f"{models}/m.gguf\n", f"stdout is the path: {done}")
        check((models / "m.gguf").read_bytes() == BODY, "the whole file")
        check((models / "m.gguf").stat().st_mode & 0o777 == 0o600 and models.stat().st_mode & 0o777 == 0o700, "private")
        check("Bearer secret-token" in served["tokens"], "the hub gets its token")
        check(not list(models.glob("*.part*")), "nothing is left beside it")
        count = len(served["ranges"])
        is_exit(pull(home, "hf:owner/repo/m.gguf", HF_ENDPOINT=url), 0, "already")
        check(len(served["ranges"]) == count, "what is there is not fetched again")
        served["tokens"].clear()
        document = json.loads(pull(home, f"{url}/plain/m.gguf", "--name", "n.gguf", "--json", HF_TOKEN="secret").stdout)
        check(document["files"] == [{"path": f"{models}/n.gguf", "bytes": len(BODY), "sha256": SHA, "verified": "size"}],
              f"--json: {document}")
        check(served["tokens"].count(None) == len(served["tokens"]), "another host does not get the hub's token")
        (models / "other.gguf").write_bytes(b"GGUFmine")
        is_exit(pull(home, f"{url}/plain/m.gguf", "--name", "other.gguf"), 2, "another file", "--name")
        check((models / "other.gguf").read_bytes() == b"GGUFmine", "a file of that name is left alone")

        served["cut_at"] = 500_000
        is_exit(pull(home, f"{url}/plain/m.gguf", "--name", "cut.gguf"), 75, "goes on where it stopped")
        check(not (models / "cut.gguf").exists(), "what was cut has not the file's name")
        served["cut_at"] = None
        is_exit(pull(home, f"{url}/plain/m.gguf", "--name", "cut.gguf", "--sha256", SHA), 0)
        check((models / "cut.gguf").read_bytes() == BODY, "another identity begins anew, and is whole")
        served["cut_at"] = 500_000
        is_exit(pull(home, f"{url}/plain/m.gguf", "--name", "cut2.gguf"), 75)
        served["cut_at"] = None
        is_exit(pull(home, f"{url}/plain/m.gguf", "--name", "cut2.gguf"), 0)
        check(served["ranges"][-1] == 500_000, f"it goes on where it stopped: {served['ranges']}")
        check((models / "cut2.gguf").read_bytes() == BODY, "and is whole")
        served["cut_at"] = 500_000
        is_exit(pull(home, f"{url}/plain/m.gguf", "--name", "cut3.gguf"), 75)
        served["cut_at"], served["version"] = None, '"2"'
        is_exit(pull(home, f"{url}/plain/m.gguf", "--name", "cut3.gguf"), 0)
        check(served["ranges"][-1] == 0, "a file that has changed meanwhile is fetched anew")

        is_exit(pull(home, f"{url}/plain/m.gguf", "--name", "bad.gguf", "--sha256", "0" * 64), 1, "SHA-256", "thrown away")
        is_exit(pull(home, f"{url}/html/m.gguf", "--name", "page.gguf"), 1, "no GGUF file")
        check(not list(models.glob("bad*")) and not list(models.glob("page*")), "wrong bytes leave nothing")
        # Whole as announced, and cut short before the server had it: what the engine would say of it.
        for size, words in ((1000, "is not usable"), (100_000, "reaches past the end of the file")):
            done = is_exit(pull(home, f"{url}/short/{size}/short.gguf"), 1, f"{models}/short.gguf is not usable", words,
                           "short.gguf.damaged")
            check("to use it" not in done.stderr and done.stdout == "", f"nothing to use: {done}")
            check([p.name for p in models.glob("short*")] == ["short.gguf.damaged"], "its name says what it is")
        is_exit(pull(home, f"{url}/short/{len(MODEL)}/short.gguf"), 0, "to use it")
        check([p.name for p in models.glob("short*")] == ["short.gguf"], "a good one replaces it")
        (models / "old.gguf").write_bytes(MODEL[:1000])
        is_exit(pull(home, f"{url}/short/1000/old.gguf"), 1, "is not usable", "remove it")
        check((models / "old.gguf").exists(), "a file that was there is left alone")
        is_exit(pull(home, f"{url}/short/1000/x-00001-of-00002.gguf"), 1, "is not usable")
        check(not list(models.glob("x-*.gguf")) and len(list(models.glob("x-*.damaged"))) == 2, "all parts are set aside")
        is_exit(pull(home, f"{url}/plain/none.gguf"), 1, "404")
        is_exit(pull(home, f"{url}/secret/m.gguf"), 1, "may not be read")
        done = is_exit(pull(home, f"{url}/plain/part-00001-of-00002.gguf"), 0)
        check(len(done.stdout.splitlines()) == 2, f"all parts of a split file: {done}")

        is_exit(pull(home, "http://127.0.0.1:1/m.gguf"), 75, "cannot be reached", str(models))
        is_exit(pull(home, "https://no-such-host.invalid/m.gguf"), 75, "cannot be reached", str(models))
        for words in (["model"], ["http://example.com/m.gguf"], [f"{url}/m.bin"], ["hf:x/y.gguf"], [],
                      [f"{url}/plain/m.gguf", "--sha256", "xyz"], [f"{url}/plain/m.gguf", "--name", "../m.gguf"]):
            is_exit(pull(home, *words), 2)
        is_exit(pull(home, f"{url}/plain/m.gguf", "--name", "x.gguf", PATH="/nowhere"), 1, "curl", "install")
        is_exit(pull(home, f"{url}/plain/m.gguf", PONDER_URL="http://127.0.0.1:7663"), 2, "PONDER_URL")
    server.shutdown()


main()
finish("pull_test")
