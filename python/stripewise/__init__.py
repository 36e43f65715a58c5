"""Predict, size and judge RAID arrays: the models and measurements of Stripewise.

>>> import stripewise
>>> stripewise.predict(drives="4xmg08ada800e", layout="raid5")["mb_per_s"] > 0
True

Sizes are numbers of bytes or text such as `"64K"` and `"4TB"`. Calls that take long release the
interpreter's lock, show progress by tqdm if it is installed, and end within 100 ms of an interrupt.
Errors are `stripewise.Error`, with a `hint`.
"""

from . import lab, parity
from ._errors import DaemonError, Error, RequestError
from ._models import advise, catalogue, predict, reliability, replay, sweep, torture, validate
from ._native import Table
from .daemon import Daemon, Pool, Volume

__all__ = [
    "Daemon",
    "DaemonError",
    "Error",
    "Pool",
    "RequestError",
    "Table",
    "Volume",
    "advise",
    "catalogue",
    "lab",
    "parity",
    "predict",
    "reliability",
    "replay",
    "sweep",
    "torture",
    "validate",
]
