//! Programs that are compared: what people run on storage, short enough for ten pairs, each with its own input.
//!
//! A script works in the folder `$1`, which is its working directory and empty, and has `$2` processors. It waits for
//! its servers by their messages and never sleeps, because native CPU time has no idle time in it.

use std::path::{Path, PathBuf};

/// A program that is run on both sides.
pub(super) struct Program {
    pub name: &'static str,
    /// Executables that it needs.
    pub needs: &'static [&'static str],
    /// Whether it uses several processors where there are several.
    pub parallel: bool,
    pub script: &'static str,
}

pub(super) const PROGRAMS: [Program; 13] = [
    Program {
        name: "tar",
        needs: &["tar", "seq"],
        parallel: false,
        script: "mkdir files
for i in $(seq 400); do seq $((i * 3)) > files/$i; done
tar -cf files.tar files
for copy in 1 2 3 4; do mkdir $copy; tar -xf files.tar -C $copy; done
",
    },
    Program {
        name: "make",
        needs: &["make", "cc", "seq"],
        parallel: true,
        script: "objects=
for i in $(seq 8); do
    { printf '#include <stdio.h>\\n#include <stdlib.h>\\n#include <string.h>\\n'
      for j in $(seq 60); do
          printf 'int f%d_%d(int n) { int s = 0; for (int k = 0; k < n; k++) s += k %% %d; return s; }\\n' $i $j $j
      done
    } > $i.c
    objects=\"$objects $i.o\"
done
printf 'all:%s\\n\\tcc -shared -o all.so%s\\n%%.o: %%.c\\n\\tcc -O1 -fPIC -c $<\\n' \"$objects\" \"$objects\" > Makefile
make -s -j\"$2\"
",
    },
    Program {
        name: "postmark",
        needs: &["postmark"],
        parallel: false,
        script: "printf '%s\\n' \"set location $1\" 'set number 500' 'set transactions 5000' run quit | postmark > /dev/null
",
    },
    Program {
        name: "postmark-8",
        needs: &["postmark"],
        parallel: false,
        script: "for job in 1 2 3 4 5 6 7 8; do
    mkdir $job
    printf '%s\\n' \"set location $1/$job\" 'set number 60' 'set transactions 600' run quit | postmark > /dev/null &
done
wait
",
    },
    Program {
        name: "sqlite",
        needs: &["sqlite3", "seq"],
        parallel: false,
        script: "{ echo 'pragma synchronous=off; create table t(a integer primary key, b text);'
  for i in $(seq 600); do echo \"insert into t(b) values (hex(zeroblob($i)));\"; done
  echo 'select sum(length(a.b) * length(c.b)) from t a join t c where a.a % 7 = c.a % 7;'
} | sqlite3 base.db > /dev/null
",
    },
    Program {
        name: "ffmpeg",
        needs: &["ffmpeg"],
        parallel: false,
        script: "ffmpeg -v error -nostdin -f lavfi -i testsrc2=size=352x288:rate=30:duration=4 -threads 1 -c:v mpeg2video a.mpg
ffmpeg -v error -nostdin -threads 1 -i a.mpg -threads 1 -f rawvideo a.yuv
",
    },
    Program {
        name: "rocksdb",
        needs: &["db_bench"],
        parallel: false,
        script: "db_bench --db=\"$1/base\" --num=60000 --benchmarks=fillrandom,readrandom,readseq --compression_type=none \
                 > result 2>&1
",
    },
    Program {
        name: "pgbench",
        needs: &["initdb", "postgres", "pgbench", "setpriv"],
        parallel: true,
        // A server does not run as root.
        script: "user() {
    if [ \"$(id -u)\" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; else \"$@\"; fi
}
PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
if [ \"$(id -u)\" = 0 ]; then chown 65534:65534 .; fi
user initdb -D data -A trust -U bench --no-sync > /dev/null
mkfifo log
exec 3<> log
user postgres -D data -k \"$1\" -c listen_addresses= -c autovacuum=off 2>&3 &
grep -qm1 'ready to accept' <&3
user pgbench -h \"$1\" -U bench -q -i -s 2 postgres 2> /dev/null
user pgbench -h \"$1\" -U bench -c \"$2\" -t 500 postgres > result 2>&1
kill -INT \"$(head -n 1 data/postmaster.pid)\"
wait
",
    },
    Program {
        name: "git-clone",
        needs: &["git", "seq"],
        parallel: false,
        script: "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q origin
for commit in 1 2 3; do
    for i in $(seq 100); do seq $((i * commit)) $((i * commit + 900)) > origin/$i; done
    git -C origin add .
    git -C origin commit -q -m $commit
done
for copy in 1 2; do git clone -q --no-local origin $copy; done
git -C 1 log --stat > /dev/null
",
    },
    Program {
        name: "rsync",
        needs: &["rsync", "seq"],
        parallel: false,
        script: "mkdir from
for i in $(seq 300); do seq $((i * 20)) > from/$i; done
for copy in 1 2 3; do rsync -a from/ $copy; done
for i in $(seq 10 10 300); do echo more >> from/$i; done
for copy in 1 2 3; do rsync -a --checksum from/ $copy; done
",
    },
    Program {
        name: "zstd",
        needs: &["zstd", "seq", "cmp"],
        parallel: true,
        script: "seq 2000000 > numbers
zstd -q -T\"$2\" -9 numbers
zstd -q -d -c numbers.zst | cmp - numbers
",
    },
    Program {
        name: "redis",
        needs: &["redis-server", "redis-benchmark", "redis-cli"],
        parallel: false,
        script: "mkfifo log
exec 3<> log
redis-server --port 0 --unixsocket \"$1/socket\" --save '' --dir \"$1\" >&3 &
grep -qm1 'eady to accept' <&3
redis-benchmark -s \"$1/socket\" -q -n 4000 -t set,get,incr,lpush > /dev/null
redis-cli -s \"$1/socket\" shutdown nosave
wait
",
    },
    Program {
        name: "python",
        needs: &["python3"],
        parallel: false,
        script: "python3 - <<'END'
import collections, hashlib, json, random
draw = random.Random(1)
words = [f'w{draw.randrange(20000)}' for _ in range(300000)]
counts = collections.Counter(words)
for part in range(50):
    with open(f'{part}.json', 'w') as file:
        json.dump({word: count for word, count in counts.items() if count % 50 == part}, file)
total = sum(sum(json.load(open(f'{part}.json')).values()) for part in range(50))
assert total == len(words)
assert len(hashlib.sha256(' '.join(sorted(words)).encode()).hexdigest()) == 64
END
",
    },
];

impl Program {
    /// The first executable that is not installed.
    pub fn missing(&self) -> Option<&'static str> {
        self.needs.iter().copied().find(|name| !is_there(name))
    }
}

fn is_there(executable: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    // Debian keeps a database server out of the path, in a folder of its version.
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    folders.iter().any(|folder: &PathBuf| Path::is_file(&folder.join(executable)))
}
