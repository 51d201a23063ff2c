#!/usr/bin/env python3
"""Speculative decoding against plain decoding on the bundled questions, in one run: A B B A.

    speculation.py BIN_DIR [--questions N] [--threads T] [--effort medium] [--temperature 0] [--concurrent N]
                   [--peer LLAMA_BENCH]

Two daemons on the bundled model, one with speculation off. The questions are the 260 that end in a
text; the 20 that end in a tool call are left out. Prints tokens per second of decoding
(tokens over the time from the first to the last), the ratio, with --peer how fast plain decoding is
against llama.cpp's (compare_cpu.py) in the same run, how many drafts were accepted, and how
many answers were right with and without, with the two-sided p of that difference. Judges that both
gave the same texts and that the right-answer rates do not differ (p > 0.01). More questions than
there are bundled ones are asked again with other seeds.
"""
import argparse
import concurrent.futures
import math
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402
from harness import ROOT, Daemon, check, finish, json  # noqa: E402


def daemon_with(speculation, arguments):
    config = pathlib.Path(tempfile.mkdtemp()) / "ponder.toml"
    config.write_text(f'speculation = "{speculation}"\nthreads = {arguments.threads}\n')
    return Daemon("--model", ROOT / "models/pebble" / arguments.model, "--ctx", "8192", "--config", config).start()


class Tally:
    def __init__(self):
        self.tokens, self.seconds, self.drafted, self.accepted, self.right, self.texts = 0, 0.0, 0, 0, 0, {}

    def ask(self, daemon, row, arguments, seed):
        body = {"messages": row["messages"], "kind": "ask", "effort": arguments.effort, "force_new": True,
                "temperature": arguments.temperature, "seed": seed}
        job = daemon.call("POST", "/v1/jobs", body).json
        job = daemon.wait_terminal(job["job_id"], 300)
        n = job["tokens"]["reasoning"] + job["tokens"]["answer"]
        if n > 1 and job["tokens_per_s"]:
            self.tokens += n - 1
            self.seconds += (n - 1) / job["tokens_per_s"]
        self.drafted += job["drafted"] or 0
        self.accepted += job["accepted"] or 0
        answer = daemon.text(job["job_id"], "partial")
        self.right += answer.strip() == row["answer"].strip()
        self.texts[seed] = (daemon.text(job["job_id"], "reasoning"), answer)

    def rate(self):
        return self.tokens / max(1e-9, self.seconds)


def two_sided(a, b, n):
    """p of two shares a / n and b / n being the same (normal approximation)."""
    pooled = (a + b) / (2 * n)
    deviation = math.sqrt(2 * pooled * (1 - pooled) / n)
    return math.erfc(abs(a - b) / n / deviation / math.sqrt(2)) if deviation > 0 else 1.0


def against_peer(a):
    if a.peer:
        subprocess.run([sys.executable, pathlib.Path(__file__).with_name("compare_cpu.py"), "--peer", a.peer, "--bin", a.bin, "--rounds", "1",
                        "--threads", str(a.threads), "--model", ROOT / "models/pebble" / a.model], check=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("bin")
    p.add_argument("--questions", type=int, default=60)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--effort", default="medium")
    p.add_argument("--temperature", type=float, default=0)
    p.add_argument("--concurrent", type=int, default=1, help="questions at a time; speeds mean something only with 1")
    p.add_argument("--model", default="pebble-q8_0.gguf")
    p.add_argument("--peer")
    a = p.parse_args()
    against_peer(a)
    rows = [json.loads(line) for line in open(ROOT / "models/pebble/eval.jsonl")]
    rows = [row for row in rows if "answer" in row]
    step = max(1, len(rows) // a.questions)
    rows = [rows[i * step % len(rows)] for i in range(a.questions)]
    with daemon_with("off", a) as plain, daemon_with("adaptive", a) as drafting:
        tallies = {"plain": Tally(), "drafting": Tally()}
        def both(numbered):
            i, row = numbered
            for who in ("plain", "drafting") if i % 2 else ("drafting", "plain"):
                tallies[who].ask(plain if who == "plain" else drafting, row, a, 1000 + i)

        with concurrent.futures.ThreadPoolExecutor(a.concurrent) as pool:
            list(pool.map(both, enumerate(rows)))
    against_peer(a)
    x, y = tallies["drafting"], tallies["plain"]
    share = 100 * x.accepted / max(1, x.drafted)
    print(f"| {a.model} | {a.effort} | temperature {a.temperature} | {a.threads} | {y.rate():.0f} | {x.rate():.0f} | "
          f"{x.rate() / y.rate():.2f} | {share:.0f} % of {x.drafted} |")
    p_value = two_sided(x.right, y.right, len(rows))
    print(f"right answers: {y.right} of {len(rows)} plain, {x.right} drafting, p = {p_value:.3f}")
    check(p_value > 0.01, "speculation changes how often answers are right")
    check(x.texts == y.texts, "speculation changed a text")
    finish("speculation")


main()
