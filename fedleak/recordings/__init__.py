"""Recordings of what a server saw: reading, writing, and making one of another system's files."""

from typing import TYPE_CHECKING

from fedleak.core.exports import exports

if TYPE_CHECKING:
    from fedleak.recordings.recording import Recording as Recording
    from fedleak_recorder.system import System as System
    from fedleak_recorder.writer import RecordingWriter as RecordingWriter

__all__ = exports(__name__)
