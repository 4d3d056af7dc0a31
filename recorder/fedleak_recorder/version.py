"""Version of the distribution ``fedleak-recorder``."""

__version__ = "0.1.0"
