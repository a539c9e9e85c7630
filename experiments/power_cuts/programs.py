"""Programs whose data a power cut may lose, with the checks of what they acknowledged."""

from dataclasses import dataclass

#: Commits acknowledged rows: synchronisation `$1`, journal `$2`, number of rows `$3` (default: 25).
SQLITE = """
cd /mnt
set_up="PRAGMA journal_mode=$2; PRAGMA synchronous=$1;"
sqlite3 db "$set_up CREATE TABLE t(i);" >/dev/null; sync
i=0; while [ $i -lt ${3:-25} ]; do i=$((i+1))
    sqlite3 db "$set_up INSERT INTO t VALUES($i);" >/dev/null && echo $i >$CHRONODISK_ACK
done"""

SQLITE_CHECK = """
test -s $CHRONODISK_ACK || exit 0
rows=$(sqlite3 db 'PRAGMA integrity_check; SELECT i FROM t') || exit 1
lost=$( (echo ok; cat $CHRONODISK_ACK) | grep -vxF "$rows") || exit 0
echo $lost: lost
exit 1"""

#: Appends acknowledged records to a log; the write of record `$1` is not made durable.
LOG = """
dd if=/dev/zero of=/mnt/log bs=4096 count=24 conv=fsync 2>/dev/null
i=0; while [ $i -lt 20 ]; do i=$((i+1))
    sync=,fdatasync; [ $i != $1 ] || sync=
    printf 'record %s\\n%4096s' $i | dd of=/mnt/log bs=4096 count=1 iflag=fullblock seek=$i oflag=direct \
        conv=notrunc$sync 2>/dev/null || exit 1
    n=0; while [ $n -lt 40 ]; do echo $i; [ $i = $1 ] || break; sleep 0.01; n=$((n+1)); done >$CHRONODISK_ACK
done"""

LOG_CHECK = """
while read -r i; do
    dd if=/mnt/log bs=4096 skip=$i count=1 2>/dev/null | grep -q "^record $i\\$" && continue
    echo record $i is lost; exit 1
done <$CHRONODISK_ACK"""

#: Replaces a file by rename, several times; `$1` makes the new file durable.
REPLACE = """
cd /mnt; echo 0 >file; sync; echo ready >$CHRONODISK_ACK
i=0; while [ $i -lt 6 ]; do i=$((i+1))
    echo $i >next; $1; mv next file; sleep 6
    n=0; while [ $n -lt 20 ]; do echo $n; n=$((n+1)); done >$CHRONODISK_ACK
done"""

REPLACE_CHECK = """
test -s $CHRONODISK_ACK || exit 0
grep -q '^[0-6]$' /mnt/file || { echo the file has neither its old nor its new contents; exit 1; }"""

#: Acknowledges files that were synchronised with their folder.
FILES = """
cd /mnt
i=0; while [ $i -lt 20 ]; do i=$((i+1))
    echo contents $i >file$i; sync file$i .; echo $i >$CHRONODISK_ACK
done"""

FILES_CHECK = """
for i in $(cat $CHRONODISK_ACK); do
    grep -qx "contents $i" file$i || { echo file$i is lost; exit 1; }
done"""

#: Creates, appends to, renames, links, truncates and deletes files, 500 times; the checks are those of the file system.
STRESS = """
cd /mnt; mkdir a b
awk 'BEGIN { srand(7); for (i = 0; i < 500; i++) print int(rand() * 9), int(rand() * 12), int(rand() * 12) }' |
while read -r op x y; do
    case $op in
    0|1) head -c $((x * 3000 + y * 511)) /dev/urandom >a/$x ;;
    2) head -c $((y * 1500)) /dev/urandom >>b/$x ;;
    3) [ ! -e a/$x ] || mv a/$x b/$y ;;
    4) [ ! -e b/$x ] || ln -f b/$x a/l$y ;;
    5) [ ! -e a/$x ] || truncate -s $((y * 700)) a/$x ;;
    6) rm -f b/$x a/l$y ;;
    7) mkdir -p a/d$x/e$y; [ ! -e b/$y ] || mv b/$y a/d$x/e$y ;;
    8) sync ;;
    esac
    echo $op >$CHRONODISK_ACK
done"""

#: Commits to a git repository, with the setting `$1` of core.fsync, if it is not empty.
GIT = """
export HOME=/mnt GIT_CONFIG_NOSYSTEM=1
cd /mnt; git init -q repo; cd repo; git config user.email a@example.org; git config user.name a
[ -z "$1" ] || git config core.fsync $1
sync
i=0; while [ $i -lt 8 ]; do i=$((i+1))
    echo contents $i >file$i; git add file$i && git commit -qm $i && git rev-parse HEAD >$CHRONODISK_ACK
done"""

GIT_CHECK = """
export HOME=/mnt GIT_CONFIG_NOSYSTEM=1
test -s $CHRONODISK_ACK || exit 0
cd repo || exit 1
last=$(tail -n 1 $CHRONODISK_ACK)
git rev-parse -q --verify HEAD >/dev/null || { echo HEAD names no commit; exit 1; }
git merge-base --is-ancestor $last HEAD || { echo commit $last is not in the branch; exit 1; }
git fsck --full --no-dangling 2>&1 | grep -i -e error -e fatal -e missing && exit 1
exit 0"""

#: Sets keys in Redis with an append-only file that is synchronised at each command.
REDIS = """
cd /mnt
redis-server --port 0 --unixsocket /dev/shm/r.sock --dir /mnt --appendonly yes --appendfsync always --save '' \
    --daemonize yes --logfile /dev/null >/dev/null
until redis-cli -s /dev/shm/r.sock ping >/dev/null 2>&1; do sleep 0.05; done
i=0; while [ $i -lt 25 ]; do i=$((i+1))
    [ "$(redis-cli -s /dev/shm/r.sock set key$i value$i)" = OK ] && echo $i >$CHRONODISK_ACK
done
redis-cli -s /dev/shm/r.sock shutdown nosave"""

REDIS_CHECK = """
test -s $CHRONODISK_ACK || exit 0
redis-server --port 0 --unixsocket /dev/shm/r.sock --dir $PWD --appendonly yes --save '' --daemonize yes \
    --logfile /dev/null >/dev/null
n=0; until redis-cli -s /dev/shm/r.sock ping 2>/dev/null | grep -q PONG; do
    n=$((n+1)); [ $n -lt 60 ] || { echo the server does not start; exit 1; }; sleep 0.05
done
status=0
for i in $(cat $CHRONODISK_ACK); do
    [ "$(redis-cli -s /dev/shm/r.sock get key$i)" = value$i ] || { echo key$i is lost; status=1; break; }
done
redis-cli -s /dev/shm/r.sock shutdown nosave
exit $status"""

#: Commits transactions to an LMDB environment with its defaults.
LMDB = """
exec /usr/bin/python3 -S -c '
import os, sys
sys.path.append("/usr/lib/python3/dist-packages")
import lmdb
environment = lmdb.open("/mnt/lmdb", map_size=16 << 20)
for i in range(25):
    with environment.begin(write=True) as transaction:
        transaction.put(b"key%d" % i, b"value%d" % i)
    with open(os.environ["CHRONODISK_ACK"], "w") as acknowledged:
        acknowledged.write("%d\\n" % i)
'"""

LMDB_CHECK = """
test -s $CHRONODISK_ACK || exit 0
exec /usr/bin/python3 -S -c '
import os, sys
sys.path.append("/usr/lib/python3/dist-packages")
import lmdb
environment = lmdb.open("lmdb", map_size=16 << 20, create=False)
with environment.begin() as transaction:
    for line in open(os.environ["CHRONODISK_ACK"]):
        if transaction.get(b"key%d" % int(line)) != b"value%d" % int(line):
            sys.exit("key%d is lost" % int(line))
'"""


@dataclass(frozen=True)
class Program:
    """A program in a guest, and what a power cut may do to it."""

    name: str
    file_systems: tuple[str, ...]
    script: str
    check: str
    #: Words of the script.
    words: tuple[str, ...] = ()
    #: Options of `chronodisk crash`.
    options: tuple[str, ...] = ()
    #: Whether the search finds failing states.
    loses: bool = False
    #: Whether `--states` sets the number of states.
    many: bool = False
    #: What the program's documentation, or its code, says.
    promise: str = ""


ALL = ("ext4", "xfs", "btrfs")
#: The states of `any` count a flush that lies as a flush.
LYING = ("--fault", "kind=lying-flush", "--states", "model")

PROGRAMS = (
    Program(
        "replace by rename, no fsync",
        ("ext4",),
        REPLACE,
        REPLACE_CHECK,
        (":",),
        ("--mount-options", "noauto_da_alloc"),
        loses=True,
        promise="none without fsync (rename(2), ext4's noauto_da_alloc)",
    ),
    Program(
        "replace by rename, fsync",
        ("ext4",),
        REPLACE,
        REPLACE_CHECK,
        ("sync next",),
        ("--mount-options", "noauto_da_alloc"),
        promise="old or new contents",
    ),
    Program(
        "log, one fdatasync missing",
        ("ext4",),
        LOG,
        LOG_CHECK,
        ("3",),
        loses=True,
        promise="none for that record",
    ),
    Program("log", ALL, LOG, LOG_CHECK, ("none",), promise="each record (fdatasync)"),
    Program(
        "synchronised files, no barriers",
        ("ext4",),
        FILES,
        FILES_CHECK,
        options=("--mount-options", "barrier=0"),
        loses=True,
        promise="none on a volatile cache (ext4's barrier=0)",
    ),
    Program(
        "synchronised files, lying flush",
        ALL,
        FILES,
        FILES_CHECK,
        options=LYING,
        loses=True,
        promise="none: the device's fault",
    ),
    Program("synchronised files", ALL, FILES, FILES_CHECK, promise="each file (fsync)"),
    Program(
        "SQLite, OFF, rollback journal",
        ("ext4",),
        SQLITE,
        SQLITE_CHECK,
        ("OFF", "DELETE"),
        loses=True,
        promise="none (synchronous=OFF)",
    ),
    Program(
        "SQLite, FULL, rollback journal",
        ALL,
        SQLITE,
        SQLITE_CHECK,
        ("FULL", "DELETE"),
        loses=True,
        promise="no corruption; only EXTRA synchronises the folder of the deleted journal",
    ),
    Program(
        "SQLite, EXTRA, rollback journal",
        ALL,
        SQLITE,
        SQLITE_CHECK,
        ("EXTRA", "DELETE"),
        promise="each transaction",
    ),
    # All cuts of 100 rows give 743 states on XFS.
    Program(
        "SQLite, FULL, WAL", ALL, SQLITE, SQLITE_CHECK, ("FULL", "WAL", "160"), promise="each transaction", many=True
    ),
    Program("file operations", ALL, STRESS, "true", promise="a consistent file system", many=True),
    Program(
        "git, defaults",
        ("ext4",),
        GIT,
        GIT_CHECK,
        ("",),
        loses=True,
        promise="objects in packs and loose objects (git-config, core.fsync), no references",
    ),
    Program(
        "git, core.fsync=all",
        ("ext4",),
        GIT,
        GIT_CHECK,
        ("all",),
        loses=True,
        promise="objects and references; git synchronises no folder",
    ),
    Program("Redis, appendfsync always", ("ext4",), REDIS, REDIS_CHECK, promise="each command"),
    Program("LMDB, defaults", ("ext4",), LMDB, LMDB_CHECK, promise="each transaction"),
)
