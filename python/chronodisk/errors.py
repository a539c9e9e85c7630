"""Every exception that this package raises on purpose."""


class ChronodiskError(Exception):
    """Something can't be done. ``str(error)`` says what was found and what was expected, and what to do about it."""

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message if help is None else f"{message}\n{help}")
        self.message = message
        self.help = help


class UsageError(ChronodiskError, ValueError):
    """An argument, a profile or a trace is wrong."""


class HostError(ChronodiskError):
    """This host lacks something, or the operating system refused something."""


class ModelError(ChronodiskError):
    """A device model did what a model must not do, such as completing a request before its arrival."""


class CommandError(ChronodiskError):
    """The command ``chronodisk`` ended with another status than was expected."""

    def __init__(self, message: str, status: int, help: str | None = None) -> None:
        super().__init__(message, help)
        #: Exit status of the command; 128 + n if signal n ended it.
        self.status = status
