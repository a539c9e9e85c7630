"""A web server and its client over a network of limited bandwidth: figure 8 of the SPE paper.

nginx serves a folder, and siege fetches its files. `--make` writes the files. Without it, the program runs as root in a
network namespace of its own (`unshare --net`). A token bucket limits the loopback interface of this namespace. The
program prints one line of JSON: bytes and seconds.
"""

import argparse
import json
import random
import socket
import subprocess
import tempfile
import time
from pathlib import Path

#: The paper's transfer of 30 s at 11.734 MB/s is 352 MB. Its device transferred for 4.8 s at 46.7 MB/s: 224 MB.
FILE_BYTES = 200_000
FROM_DEVICE, FROM_CACHE = 1_120, 640
PORT = 8080
CONFIGURATION = """
daemon off;
user root;
worker_processes 1;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    keepalive_requests 1000000;
    sendfile on;
    client_body_temp_path {folder};
    proxy_temp_path {folder};
    fastcgi_temp_path {folder};
    uwsgi_temp_path {folder};
    scgi_temp_path {folder};
    server {{
        listen 127.0.0.1:{port};
        root {root};
    }}
}}
"""
CLIENT = """
logging = false
verbose = false
json_output = true
parser = false
connection = keep-alive
protocol = HTTP/1.1
limit = 255
timeout = 120
failures = 1
benchmark = true
"""
#: Larger than a segment of the loopback interface.
BUCKET_BYTES = 1 << 18


def make(folder: Path) -> None:
    """Write the files."""
    folder.mkdir()
    source = random.Random(1)
    for number in range(FROM_DEVICE):
        (folder / str(number)).write_bytes(source.randbytes(FILE_BYTES))


def names() -> list[str]:
    """Give the fetched files: each once, and in between those that were fetched before."""
    source = random.Random(2)
    new = list(range(FROM_DEVICE))
    source.shuffle(new)
    # The first one has none before it.
    kinds = [True] * (FROM_DEVICE - 1) + [False] * FROM_CACHE
    source.shuffle(kinds)
    fetched: list[int] = []
    for is_new in [True, *kinds]:
        fetched.append(new.pop() if is_new else source.choice(fetched))
    return [str(name) for name in fetched]


def wait_for(server: "subprocess.Popen[bytes]") -> None:
    """Wait until the server takes connections."""
    for _ in range(1_000):
        if server.poll() is not None:
            raise SystemExit(f"nginx ended with status {server.returncode}")
        try:
            socket.create_connection(("127.0.0.1", PORT)).close()
            return
        except OSError:
            time.sleep(0.01)
    raise SystemExit("nginx takes no connections")


def limit(rate: str | None) -> None:
    """Make the loopback interface ready, with so many bits per second."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    if rate is not None:
        bucket = ["rate", rate, "burst", str(BUCKET_BYTES), "latency", "100ms"]
        subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "tbf", *bucket], check=True)


def fetch(folder: Path) -> dict[str, float]:
    """Serve and fetch the files."""
    fetched = names()
    with tempfile.TemporaryDirectory() as scratch:
        configuration, client, urls = (Path(scratch) / name for name in ("nginx.conf", "siegerc", "urls"))
        configuration.write_text(CONFIGURATION.format(folder=scratch, root=folder, port=PORT))
        client.write_text(CLIENT)
        urls.write_text("".join(f"http://127.0.0.1:{PORT}/{name}\n" for name in fetched))
        server = subprocess.Popen(["nginx", "-c", str(configuration)])
        try:
            wait_for(server)
            options = [f"--rc={client}", f"--file={urls}", f"--reps={len(fetched)}", "--concurrent=1"]
            begun = time.monotonic()
            done = subprocess.run(["siege", *options], capture_output=True, text=True, check=True)
            seconds = time.monotonic() - begun
        finally:
            server.terminate()
            server.wait()
    said = json.loads(done.stdout[done.stdout.index("{") :])
    if said["successful_transactions"] != len(fetched) or said["failed_transactions"]:
        raise SystemExit(f"siege: {said}")
    return {"bytes": len(fetched) * FILE_BYTES, "seconds": seconds}


def main() -> None:
    """Make the files, or serve and fetch them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--rate", help="bits per second of the network, as tc takes them; without it, no limit")
    arguments = parser.parse_args()
    if arguments.make:
        make(arguments.folder)
        return
    limit(arguments.rate)
    print(json.dumps(fetch(arguments.folder)))


if __name__ == "__main__":
    main()
