"""Many waiting clients in one process, so that what is late is the daemon and not the client: raw
sockets on one epoll, and answers stamped as they come.

Run by load_test.py as  wait_client.py SOCKET  with a plan on stdin, one JSON line; it ends when the
time is over and prints one JSON line with what it saw.
"""
import heapq
import json
import random
import select
import socket
import sys
import time


class Client:
    __slots__ = ("socket", "sent", "bound", "job", "kill_at", "reply")


class Waits:
    """`plan`: jobs, waits (at once), seconds, bounds [least, most], again (a wait that has ended is
    followed by the next one), kill (share of the clients that go away in the middle)."""

    def __init__(self, path, plan):
        self.path, self.plan = path, plan
        self.random = random.Random(plan["seed"])
        self.poll = select.epoll()
        self.clients, self.kills = {}, []
        self.late_ms, self.early_ms, self.statuses, self.bad, self.killed = [], 0.0, {}, [], 0

    def begin(self):
        plan = self.plan
        client = Client()
        client.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.socket.connect(self.path)
        client.socket.setblocking(False)
        client.job = self.random.choice(plan["jobs"])
        client.bound = round(self.random.uniform(*plan["bounds"]), 2)
        client.reply = b""
        client.sent = time.monotonic()
        client.kill_at = 0.0
        if self.random.random() < plan["kill"]:
            client.kill_at = client.sent + client.bound * self.random.random()
            heapq.heappush(self.kills, (client.kill_at, client.socket.fileno(), id(client)))
        client.socket.send(f"GET /v1/jobs/{client.job}?wait_s={client.bound} HTTP/1.1\r\nHost: localhost\r\n"
                           "Connection: close\r\n\r\n".encode())
        self.clients[client.socket.fileno()] = client
        self.poll.register(client.socket.fileno(), select.EPOLLIN)

    def end(self, client):
        del self.clients[client.socket.fileno()]
        client.socket.close()

    def run(self):
        until = time.monotonic() + self.plan["seconds"]
        begun = 0
        while True:
            now = time.monotonic()
            wanted = self.plan["waits"] - (len(self.clients) if self.plan["again"] else begun)
            if now < until:
                for _ in range(min(wanted, 20)):  # a few at a time, so that answers are stamped in between
                    self.begin()
                    begun += 1
            elif not self.clients:
                return self.report(begun)
            while self.kills and self.kills[0][0] <= now:
                _, number, which = heapq.heappop(self.kills)
                client = self.clients.get(number)
                if client is not None and id(client) == which:
                    self.end(client)
                    self.killed += 1
            pause = 0.0 if wanted > 0 and now < until else 0.05
            if self.kills:
                pause = min(pause, max(0.0, self.kills[0][0] - now))
            for number, _ in self.poll.poll(pause):
                self.take(self.clients[number], time.monotonic())
            if now > until + self.plan["bounds"][1] + 20:
                self.bad.append(f"{len(self.clients)} waits never came back")
                return self.report(begun)

    def take(self, client, at):
        try:
            data = client.socket.recv(65536)
        except ConnectionError as error:
            self.bad.append(str(error))
            return self.end(client)
        client.reply += data
        head, gap, body = client.reply.partition(b"\r\n\r\n")
        if data and not (gap and len(body) >= int(head.lower().split(b"content-length:")[1].split()[0])):
            return
        self.end(client)
        if not gap:
            self.bad.append("a connection was closed without an answer")
            return
        status = int(head.split()[1])
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status != 200:
            self.bad.append(body[:200].decode(errors="replace"))
            return
        took = at - client.sent
        self.late_ms.append((took - client.bound) * 1000)
        job = json.loads(body)
        if job["job_id"] in self.plan["still"]:  # nothing of it changes: no reason to come back
            self.early_ms = max(self.early_ms, (client.bound - took) * 1000)

    def report(self, begun):
        late = sorted(self.late_ms)
        return {"begun": begun, "answered": len(late), "killed": self.killed, "statuses": self.statuses,
                "late_ms": late[-1] if late else 0.0, "early_ms": self.early_ms, "bad": self.bad[:5],
                "bad_count": len(self.bad)}


if __name__ == "__main__":
    print(json.dumps(Waits(sys.argv[1], json.loads(sys.stdin.readline())).run()), flush=True)
