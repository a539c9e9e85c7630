"""Progress of simulations and sweeps: bars of tqdm, or whatever a caller does with the numbers."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from chronodisk.errors import HostError

#: True shows a bar, False nothing, None a bar in notebooks; a function is called with what is done.
Progress: TypeAlias = Callable[..., object] | bool | None
#: Called with what is done and what there is to do, if that is known.
Tell: TypeAlias = Callable[[int, int | None], object]


def _in_notebook() -> bool:
    return "ipykernel" in sys.modules


@contextmanager
def bar(wanted: bool | None, description: str, unit: str) -> Iterator[Tell | None]:
    """What to call, if a bar is to be shown. With None it is shown in notebooks where tqdm is installed."""
    if wanted is None:
        wanted = _in_notebook()
        needed = False
    else:
        needed = wanted
    if not wanted:
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        if needed:
            raise HostError("progress bars need tqdm", "pip install tqdm") from error
        yield None
        return
    # Whoever asks for a bar sees it at once; in notebooks alone it is for what takes longer than a moment.
    shown = tqdm(desc=description, unit=unit, unit_scale=unit == "requests", delay=0 if needed else 0.5)

    def tell(done: int, total: int | None) -> None:
        if total is not None and shown.total != total:
            shown.reset(total)
        shown.update(done - shown.n)

    try:
        yield tell
    finally:
        shown.close()
