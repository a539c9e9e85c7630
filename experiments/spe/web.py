"""A web server with one thread and its client on loopback: each file once, in an order drawn from a seed."""

import http.server
import random
import sys
import threading
import urllib.request
from functools import partial
from pathlib import Path


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Logs nothing."""

    def log_message(self, *_arguments: object) -> None:
        """Keep standard error for failures."""


def main() -> None:
    """Serve, fetch, end."""
    folder = sys.argv[1]
    server = http.server.HTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    names = sorted(path.name for path in Path(folder).iterdir())
    random.Random(1).shuffle(names)
    for name in names:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/{name}") as answer:
            answer.read()


if __name__ == "__main__":
    main()
