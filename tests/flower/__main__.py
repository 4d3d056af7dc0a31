"""Runs a simulation; apart from it, because Ray's workers import what they run by its module's name."""

import sys
from pathlib import Path

from tests.flower.simulation import simulate

simulate(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
