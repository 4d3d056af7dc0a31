"""Comparisons that a recording and its ground truth suffice for: steps of an audit and of a table."""

import sys

from fedleak.core.class_paths import named_classes
from fedleak.evaluation.steps.step import RecordingRun, RecordingStep, Step

RECORDING_STEPS: dict[str, type[RecordingStep]] = named_classes(sys.modules[__name__], RecordingStep)
"""Every step of this package, by its name."""

__all__ = ["RECORDING_STEPS", "RecordingRun", "RecordingStep", "Step"]
