"""A disk as it could look after a power cut, from an strace of the program that wrote it.

`Trace` reads what `strace(...)` recorded: the writes, truncations and syncs of the files in one
directory whose names `wanted` takes, the directory's changes, and whatever the program sent to its clients, in the order in which
they began. `Disk` plays these events and gives, at any point, a disk that this point's cut could
leave behind. What is assumed of a disk:

  - what was written before a finished sync of the same file is there, whole;
  - of what was written or truncated since, each piece is there, or not, or in parts of 512 bytes;
  - a file was made or removed for certain once the directory, or a file made later, was synced;
    since then the changes are there in their order, up to some point.

A disk that says "synced" and lies is not modelled, nor is damage to the file system itself.
"""
import os
import random
import re

SECTOR = 512
CALLS = "pwrite64,write,fdatasync,fsync,ftruncate,rename,unlink,unlinkat,openat,sendmsg,sendto"


def strace(trace):
    """What stands before a program to record it."""
    return ["strace", "-f", "--seccomp-bpf", "-qq", "-xx", "-y", "-ttt", "-s", "262144", "-e", "signal=none",
            "-e", f"trace={CALLS}", "-o", str(trace)]


LINE = re.compile(r"(\d+) +(\d+\.\d+) (?:<\.\.\. )?(\w+)(.*)$", re.S)
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
FD = re.compile(r"\(-?\d+<((?:\\x[0-9a-f]{2})*)>")


def raw(text):
    return bytes.fromhex(text.replace("\\x", ""))


class Trace:
    """`events`: (kind, time, ...) with kind write (name, offset, data), cut (name, size), sync (name),
    sync_directory, make (name), remove (name), rename (from, to), sent (bytes)."""

    def __init__(self, path, directory, wanted):
        self.directory, self.wanted = os.path.realpath(directory).encode(), wanted
        self.events = []
        existing, unfinished = set(), {}
        with open(path) as lines:
            for line in lines:
                found = LINE.match(line)
                if not found:
                    continue
                thread, at, call, rest = found[1], float(found[2]), found[3], found[4]
                if rest.startswith(" resumed>"):
                    rest = unfinished.pop((thread, call), "") + rest[len(" resumed>"):]
                    began = False
                else:
                    began = True
                    if rest.rstrip().endswith("<unfinished ...>"):
                        rest = rest.rstrip()[:-len("<unfinished ...>")]
                        unfinished[(thread, call)] = rest
                        if call in ("sendmsg", "sendto", "pwrite64", "write"):
                            self.begin(at, call, rest)
                        continue
                if began and call in ("sendmsg", "sendto", "pwrite64", "write"):
                    self.begin(at, call, rest)
                self.end(at, call, rest, existing)

    def name_of(self, path):
        directory, _, name = path.rpartition(b"/")
        return name.decode() if directory == self.directory and self.wanted(name.decode()) else None

    def begin(self, at, call, rest):
        """What counts from the moment it begins: a reader may see it before the call returns."""
        if call in ("sendmsg", "sendto"):
            data = b"".join(raw(text) for text, _ in TEXT.findall(rest))
            self.events.append(("sent", at, data))
            return
        name = self.name_of(raw(FD.match(rest)[1])) if FD.match(rest) else None
        if name:
            text = TEXT.search(rest)
            assert text and not text[2], "a write was recorded in part"
            assert call == "pwrite64", f"{call} to {name}: where to is not recorded"
            offset = int(rest[text.end():].split(",")[2].split(")")[0])
            self.events.append(("write", at, name, offset, raw(text[1])))

    def end(self, at, call, rest, existing):
        """What counts once it is done."""
        if not re.search(r"= \d", rest):
            return  # it failed
        fd = FD.match(rest)
        path = raw(fd[1]) if fd else b""
        name = self.name_of(path)
        if call in ("fdatasync", "fsync"):
            if name:
                self.events.append(("sync", at, name))
            elif path == self.directory:
                self.events.append(("sync_directory", at))
        elif call == "ftruncate" and name:
            self.events.append(("cut", at, name, int(rest.split(",")[1].split(")")[0])))
        elif call == "rename":
            old, new = (self.name_of(raw(text)) for text, _ in TEXT.findall(rest))
            if old or new:
                assert old and new, f"{old} is renamed to {new}: where is its content?"
                existing.discard(old)
                existing.add(new)
                self.events.append(("rename", at, old, new))
        elif call in ("unlink", "unlinkat", "openat"):
            text = TEXT.search(rest)
            name = self.name_of(raw(text[1])) if text else None
            if name and call == "openat" and "O_CREAT" in rest and name not in existing:
                existing.add(name)
                self.events.append(("make", at, name))
            elif name and call != "openat":
                existing.discard(name)
                self.events.append(("remove", at, name))


class Inode:
    def __init__(self):
        self.synced = bytearray()
        self.pending = []

    def sync(self):
        for change in self.pending:
            apply(self.synced, change)
        self.pending = []


def apply(content, change):
    if change[0] == "cut":
        del content[change[1]:]
        content.extend(bytes(max(0, change[1] - len(content))))
    else:
        _, offset, data = change
        if len(content) < offset + len(data):
            content.extend(bytes(offset + len(data) - len(content)))
        content[offset:offset + len(data)] = data


def in_sectors(change):
    """A write as the sectors that it fills."""
    _, offset, data = change
    at = 0
    while at < len(data):
        end = min(len(data), (offset + at) // SECTOR * SECTOR + SECTOR - offset)
        yield ("write", offset + at, data[at:end])
        at = end


def change_names(names, change):
    if change[0] == "make":
        names[change[1]] = change[2]
    elif change[0] == "remove":
        names.pop(change[1], None)
    else:
        names[change[2]] = names.pop(change[1])


class Disk:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.inodes, self.durable = {}, {}  # as the program sees the directory; as it is for certain
        self.changes = []  # of the directory, since then

    def play(self, event):
        kind = event[0]
        if kind == "write":
            self.inodes[event[2]].pending.append(("write", event[3], event[4]))
        elif kind == "cut":
            self.inodes[event[2]].pending.append(("cut", event[3]))
        elif kind == "sync":
            self.inodes[event[2]].sync()
        elif kind in ("make", "remove", "rename"):
            change = (kind, *event[2:]) if kind != "make" else (kind, event[2], Inode())
            change_names(self.inodes, change)
            self.changes.append(change)
        elif kind == "sync_directory":
            for change in self.changes:
                change_names(self.durable, change)
            self.changes = []

    def left_behind(self, how):
        """{name: content} after a cut now. `how`: nothing (that was not synced is there), everything,
        torn (all but the end of the last write), some (each sector by chance)."""
        names = dict(self.durable)
        count = {"nothing": 0, "some": self.random.randint(0, len(self.changes))}.get(how, len(self.changes))
        for change in self.changes[:count]:
            change_names(names, change)
        return {name: self.content(inode, how) for name, inode in names.items()}

    def content(self, inode, how):
        content = bytearray(inode.synced)
        if how == "nothing":
            return content
        pending = list(inode.pending)
        if how == "torn" and pending and pending[-1][0] == "write":
            pieces = list(in_sectors(pending.pop()))
            pending += pieces[:self.random.randrange(len(pieces))]
        share = self.random.choice([0.1, 0.5, 0.9, 0.98])
        for change in pending:
            if how != "some":
                apply(content, change)
            elif change[0] == "cut":
                if self.random.random() < share:
                    apply(content, change)
            else:
                whole = self.random.random()  # mostly a write is there or not; sometimes in parts
                for piece in [change] if whole < 0.8 else in_sectors(change):
                    if self.random.random() < share:
                        apply(content, piece)
        return content
