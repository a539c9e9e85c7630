"""Prints what each file in a folder holds: its name, its length, and the checksum of its bytes."""

import hashlib
import os
import sys

os.chdir(sys.argv[1])
for folder, _, names in os.walk("."):
    for name in names:
        path = os.path.relpath(os.path.join(folder, name))
        try:
            data = open(path, "rb").read()
            print(path, len(data), hashlib.sha256(data).hexdigest())
        except OSError as error:
            print(path, 0, f"{error.strerror}".replace(" ", "-"))
