"""The games of the Atari 2600 as an OpenEnv environment. The client side never imports ALE."""

from .client import AtariEnv
from .models import AtariAction, AtariObservation, AtariState, AtariTask

__all__ = ["AtariAction", "AtariEnv", "AtariObservation", "AtariState", "AtariTask"]
