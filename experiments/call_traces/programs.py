"""The programs whose system calls are recorded: each a shell script that works below /mnt alone."""

import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from common.command import note

#: Developers at once, and what each does so often: edit, compile, copy, list and remove.
USERS, ROUNDS = 20, 3
USER = """
mkdir -p /mnt/u$1/src /mnt/u$1/doc; cd /mnt/u$1/src
for i in 1 2 3 4; do
    { printf 'int f%s_%s(int x) { return x + 1; }\\n' $1 $i
      seq -f "int g${1}_${i}_%.0f(int y) { return y; }" 1 $((i * 40)); } > f$i.c
done
r=0
while [ $r -lt $2 ]; do
    r=$((r + 1)); i=$((1 + ($1 + r) % 4))
    sed "s/x + 1/x + $r/" f$i.c > f$i.c.new && mv f$i.c.new f$i.c
    cp f$i.c f$i.c~
    cc -O1 -c f$i.c -o f$i.o
    mkdir ../doc/v$r; for k in 1 2 3; do cp f$k.c ../doc/v$r/; done
    ls -l .. ../doc > ../list; cat ../doc/v$r/* > ../all; wc -l ../all > ../count
    if [ $r -gt 1 ]; then rm -r ../doc/v$((r - 1)); fi
done
"""

#: A job of fio with three threads that share a file: they read at random, write in order with fsync, and append.
THREADS = """
[global]
directory=/mnt
ioengine=psync
thread
bs=4k
size=4m
[read]
rw=randread
filename=shared
io_size=1m
[write]
rw=write
filename=shared
fsync=16
io_size=2m
[append]
rw=write
bs=64k
fsync=4
"""

#: Four threads that wait for each other at a lock and append to one log, in the manner of a database's writers.
WRITERS = """
import os, threading
lock, log = threading.Lock(), os.open("/mnt/log", os.O_CREAT | os.O_WRONLY, 0o644)
def work(number):
    own = os.open(f"/mnt/table-{number}", os.O_CREAT | os.O_WRONLY, 0o644)
    for turn in range(24):
        with lock:
            os.write(log, b"x" * 3000)
            os.fsync(log)
        os.pwrite(own, b"y" * 8192, turn * 8192)
        if turn % 8 == 7:
            os.fdatasync(own)
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


@dataclass(frozen=True)
class Program:
    """A program and what it needs of this host."""

    name: str
    title: str
    script: Callable[[Path], str]
    needs: tuple[str, ...]

    def lacking(self) -> list[str]:
        """Programs that this host does not have."""
        return [need for need in self.needs if shutil.which(need) is None]

    def command(self, folder: Path) -> list[str]:
        """What a guest runs; its files are in the folder."""
        script = folder / f"{self.name}.sh"
        script.write_text(textwrap.dedent(self.script(folder)))
        return ["sh", str(script)]


def postmark(folder: Path) -> str:
    """Files of mail: made, read, appended to and removed."""
    configuration = folder / "postmark.conf"
    configuration.write_text("set location /mnt\nset number 500\nset transactions 1500\nset seed 42\nrun\nquit\n")
    return f"postmark {configuration} > /dev/null\nsync\n"


def sqlite(folder: Path) -> str:
    """Transactions of one row each."""
    rows = "".join(f"INSERT INTO t VALUES ({n}, {n * 7919 % 10007}, hex(zeroblob(200)));\n" for n in range(100))
    (folder / "rows.sql").write_text(f"CREATE TABLE t(a INTEGER PRIMARY KEY, b INTEGER, c TEXT);\n{rows}")
    return f"sqlite3 /mnt/base.db < {folder}/rows.sql\n"


def build(folder: Path) -> str:
    """Extracts sources, and builds them with two jobs of make."""
    source = folder / "source"
    source.mkdir(exist_ok=True)
    for number in range(12):
        body = "".join(f"int f{number}_{n}(int x) {{ return x * {n} + 1; }}\n" for n in range(60))
        (source / f"f{number}.c").write_text(f'#include "all.h"\n{body}')
    (source / "all.h").write_text("int main(void);\n")
    (source / "main.c").write_text("int main(void) { return 0; }\n")
    objects = " ".join(f"f{number}.o" for number in range(12))
    (source / "Makefile").write_text(
        f"all: main.o {objects}\n\tcc -o program $^\n%.o: %.c all.h\n\tcc -O1 -c $< -o $@\n"
    )
    subprocess.run(["tar", "-C", str(folder), "-cf", str(folder / "source.tar"), "source"], check=True)
    return f"cd /mnt && tar xf {folder}/source.tar && make -s -j2 -C source && sync\n"


def git(folder: Path) -> str:
    """A repository with three commits, a branch, a repacking and a clone."""
    del folder
    return """
    export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b HOME=/mnt
    export GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'
    git init -q -b main /mnt/one && cd /mnt/one
    for commit in 1 2 3; do
        mkdir d$commit
        for file in 1 2 3 4 5 6 7 8; do head -c ${file}000 /usr/include/stdlib.h > d$commit/f$file; done
        echo $commit >> d1/f1
        git add -A && git commit -q -m $commit
    done
    git checkout -q -b other HEAD~1 && git gc -q && git clone -q /mnt/one /mnt/two && git log --stat > /mnt/log
    sync
    """


def users(folder: Path) -> str:
    """Twenty developers at once."""
    (folder / "user.sh").write_text(USER)
    return f"for u in $(seq 1 {USERS}); do sh {folder}/user.sh $u {ROUNDS} & done; wait; sync\n"


def threads(folder: Path) -> str:
    """fio with three threads."""
    (folder / "threads.fio").write_text(THREADS)
    return f"fio --output=/dev/null {folder}/threads.fio\n"


def writers(folder: Path) -> str:
    """Threads that wait for each other."""
    (folder / "writers.py").write_text(WRITERS)
    return f"python3 {folder}/writers.py\n"


PROGRAMS = [
    Program("postmark", "PostMark, 1,500 transactions", postmark, ("postmark",)),
    Program("sqlite", "SQLite, 100 transactions", sqlite, ("sqlite3",)),
    Program("build", "tar and make -j2", build, ("tar", "make", "cc")),
    Program("git", "git: commits, gc, clone", git, ("git",)),
    Program("threads", "fio with three threads", threads, ("fio",)),
    Program("writers", "four threads at a lock", writers, ("python3",)),
    Program("users", f"{USERS} developers at once", users, ("cc",)),
]


def chosen(only: list[str], left_out: dict[str, str]) -> Iterator[Program]:
    """Give the programs of these names, or all; what this host lacks for one goes into `left_out` instead."""
    for program in PROGRAMS:
        if only and program.name not in only:
            continue
        if lacking := program.lacking():
            left_out[program.name] = f"no {', '.join(lacking)}"
            note(f"SKIPPED {program.name}: {left_out[program.name]} on this host")
            continue
        yield program
