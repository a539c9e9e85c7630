"""Results of sweeps on file systems of fsspec, such as S3."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chronodisk.errors import HostError

#: Files that are asked for at a time.
_BATCH = 200


def is_url(place: str | os.PathLike[str]) -> bool:
    """Whether results are to go to a file system of fsspec."""
    return isinstance(place, str) and "://" in place


class RemoteDirectory:
    """A directory of results elsewhere. Each file is written by one call, which object stores do in whole or not."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._kept: set[str] = set()
        self._made: set[str] = set()
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise HostError(f"{url}: results elsewhere need fsspec", "pip install fsspec") from error
        with _errors(url):
            self._files: Any
            self._files, self._root = url_to_fs(self.url)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def read(self, name: str) -> bytes:
        """A file; raises :class:`FileNotFoundError` if there is none."""
        with _errors(f"{self.url}/{name}", but=FileNotFoundError):
            content: bytes = self._files.cat_file(self._path(name))
        return content

    def fetch(self, names: Iterable[str], local: Path) -> None:
        """Copies those of the files that are there to a local directory; their last components differ."""
        by_base = {os.path.basename(name): name for name in names}
        with _errors(self.url):
            self._files.invalidate_cache()
            there: list[str] = []
            for folder in {os.path.dirname(name) for name in by_base.values()}:
                if self._files.exists(self._path(folder)):
                    there += [path for path in self._files.ls(self._path(folder), detail=False)]
            wanted = [path for path in there if os.path.basename(path) in by_base]
            for begin in range(0, len(wanted), _BATCH):
                # One that was removed meanwhile is not there.
                found = self._files.cat(wanted[begin : begin + _BATCH], on_error="omit")
                for path, content in found.items():
                    name = by_base[os.path.basename(path)]
                    (local / name).parent.mkdir(parents=True, exist_ok=True)
                    (local / name).write_bytes(content)

    def keep(self, local: Path, names: Iterable[str]) -> None:
        """Copies files of a local directory, as far as they are there and were not copied by this call before."""
        for name in names:
            if name in self._kept or not (local / name).exists():
                continue
            path = self._path(name)
            with _errors(f"{self.url}/{name}"):
                # Object stores have no directories, others need them.
                if os.path.dirname(path) not in self._made:
                    self._files.makedirs(os.path.dirname(path), exist_ok=True)
                    self._made.add(os.path.dirname(path))
                self._files.pipe_file(path, (local / name).read_bytes())
            self._kept.add(name)


@contextmanager
def _errors(place: str, but: type[Exception] = HostError) -> Iterator[None]:
    """Whatever a file system raises, as an error of this package."""
    try:
        yield
    except but:
        raise
    except Exception as error:
        name = type(error).__name__
        raise HostError(f"{place}: {name}: {error}", "look at the URL and at what its file system needs") from error
