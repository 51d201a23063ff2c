#!/usr/bin/env python3
"""Peak memory (VmHWM) of the three long-lived programs: memory_test.py BIN_DIR

The worker at 4K context: at most the model file plus 64 MiB. The daemon 64 MiB, ponder-mcp 20 MiB,
both after a long answer went through them. What large refused bodies took is given back (VmRSS).
"""
import threading

from harness import ROOT, Daemon, Mcp, check, finish, wait_until

MIB = 1 << 20
MODEL = ROOT / "models/pebble/pebble-q8_0.gguf"


def bytes_of(pid, name):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))


def peak(pid):
    return bytes_of(pid, "VmHWM")


def refused_bodies_leave_nothing():
    with Daemon("--engine", "stub") as daemon:
        daemon.start()
        statuses = []
        body = "x" * (15 * MIB)
        posts = [threading.Thread(target=lambda: statuses.append(daemon.submit(body).status)) for _ in range(6)]
        for post in posts:
            post.start()
        for post in posts:
            post.join()
        check(len(statuses) == 6 and set(statuses) <= {400, 429}, f"all are refused: {statuses}")
        pid = daemon.process.pid
        wait_until(lambda: bytes_of(pid, "VmRSS") < 64 * MIB, 10, "the memory is given back")
        print(f"daemon: {bytes_of(pid, 'VmRSS') / MIB:.1f} MiB after six refused bodies of 15 MiB, "
              f"{peak(pid) / MIB:.1f} MiB at its peak")


def main():
    with Daemon("--model", MODEL, "--ctx", "4096") as daemon:
        daemon.start()
        mcp = Mcp(daemon.home)
        words = "Sort these: " + ", ".join(str(7919 * k % 1000) for k in range(700))
        prompt = daemon.call("POST", "/v1/tokenize", {"text": words}).json["count"]
        reply = daemon.call("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": words}], "temperature": 0, "max_tokens": 3900 - prompt}, timeout=300)
        usage = reply.json["usage"]
        check(usage["total_tokens"] > 3000, f"most of the window was used: {usage}")
        check(not mcp.tool("ask", question="What is 12 + 30?").get("isError"), "a question is answered over MCP")
        for name, pid, limit in (("worker", daemon.try_health()["engine"]["pid"], MODEL.stat().st_size + 64 * MIB),
                                 ("daemon", daemon.process.pid, 64 * MIB), ("ponder-mcp", mcp.process.pid, 20 * MIB)):
            used = peak(pid)
            print(f"{name}: {used / MIB:.1f} MiB at its peak, {limit / MIB:.1f} MiB allowed")
            check(used <= limit, f"{name} used {used / MIB:.1f} MiB")
        mcp.close()
    refused_bodies_leave_nothing()
    finish("memory")


main()
