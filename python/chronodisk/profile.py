"""Profiles: TOML files that parameterise a device model, every value with its unit and its source."""

import html
import os
from collections.abc import Mapping, Sequence
from typing import Self, TypeAlias

from chronodisk import _core

#: A value of a profile: a text has its unit, such as ``"10045 rpm"``.
ProfileValue: TypeAlias = "str | int | float | bool | Sequence[ProfileValue]"


class Profile:
    """A device, as ``chronodisk devices`` lists them. Immutable.

    >>> Profile.load("cheetah-9lp").capacity_bytes
    9100036096
    """

    __slots__ = ("_core",)

    def __init__(self, text: str, label: str = "profile") -> None:
        """From a text in TOML; ``label`` names it in messages."""
        self._core = _core.Profile.parse(text, label)

    @classmethod
    def load(cls, name: str | os.PathLike[str]) -> Self:
        """The built-in profile of that name, or the one in a file (a name with ``/`` or that ends in ``.toml``)."""
        return cls._of(_core.Profile.load(os.fspath(name)))

    @classmethod
    def _of(cls, core: _core.Profile) -> Self:
        profile = cls.__new__(cls)
        profile._core = core
        return profile

    @staticmethod
    def names() -> list[str]:
        """Names of the built-in profiles."""
        return _core.Profile.names()

    def with_(self, changes: Mapping[str, ProfileValue] | None = None, /, **keys: ProfileValue) -> Self:
        """The same device with other values, checked as a profile's file is.

        A key in a table is written with a dot in ``changes``, and with two underscores as an argument:
        ``with_({"seek.settle": "1 ms"})`` is ``with_(seek__settle="1 ms")``.
        """
        values = dict(changes or {})
        values.update({name.replace("__", "."): value for name, value in keys.items()})
        return self._of(self._core.changed(values))

    @property
    def name(self) -> str:
        """Name of the device."""
        return self._core.name

    @property
    def kind(self) -> str:
        """Kind of its model, such as ``"disk"``."""
        return self._core.kind

    @property
    def description(self) -> str:
        """What the device is, in a sentence."""
        return self._core.description

    @property
    def source(self) -> str:
        """Where its values come from."""
        return self._core.source

    @property
    def validation(self) -> str:
        """What the model was compared with."""
        return self._core.validation

    @property
    def capacity_bytes(self) -> int:
        """Capacity in bytes, unless another one is asked for."""
        return self._core.capacity_bytes

    @property
    def text(self) -> str:
        """The whole profile in TOML."""
        return self._core.text

    def __repr__(self) -> str:
        return f"<Profile {self.name}: {self.description}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Profile) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), (self.text, self.name)

    def _repr_html_(self) -> str:
        rows = {
            "device": self.name,
            "kind": self.kind,
            "capacity": f"{self.capacity_bytes / 1e9:.6g} GB",
            "description": self.description,
            "validation": self.validation,
            "source": self.source,
        }
        cells = (f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table>{''.join(cells)}</table>"
