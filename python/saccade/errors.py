"""Exceptions. Each is a saccade.Error and the built-in exception that a Python programmer would expect."""


class Error(Exception):
    """What a call could not do; the text says what was asked and what would work."""


class InvalidArgument(Error, ValueError):
    """The input is wrong, whatever the machine."""


class Unsupported(Error, NotImplementedError):
    """Well formed, but no kernel family can do it on this device."""


class NotFound(Error, LookupError):
    """A file, library, device or symbol is missing."""


class CompileFailed(Error, RuntimeError):
    """A compiler refused a kernel; the text carries its log."""


class DeviceError(Error, RuntimeError):
    """The CUDA driver reported a failure."""


class OutOfMemory(Error, MemoryError):
    """Host or device memory ran out."""


class IoError(Error, OSError):
    """A file could not be read or written."""


class Cancelled(Error, RuntimeError):
    """Interrupted, or the interpreter is shutting down."""


class InternalError(Error, RuntimeError):
    """A bug of Saccade's."""


class TraceError(InvalidArgument):
    """A Python function could not be made into a rule; the text names the line and what would work."""


_OF_STATUS = {
    "invalid_argument": InvalidArgument,
    "unsupported": Unsupported,
    "not_found": NotFound,
    "compile_failed": CompileFailed,
    "device_error": DeviceError,
    "out_of_memory": OutOfMemory,
    "io_error": IoError,
    "cancelled": Cancelled,
}


def from_status(name: str, message: str) -> Error:
    """The exception for a status of the C interface."""
    return _OF_STATUS.get(name, InternalError)(message)
