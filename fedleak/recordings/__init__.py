"""Recordings of what a server saw: reading, writing, and making one of another system's files."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.recordings.recording import Recording as Recording
    from fedleak_recorder.system import System as System
    from fedleak_recorder.writer import RecordingWriter as RecordingWriter
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "Recording": "fedleak.recordings.recording",
            "System": "fedleak_recorder.system",
            "RecordingWriter": "fedleak_recorder.writer",
        },
    )
