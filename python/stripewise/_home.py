"""The state folder of this user, as the command line finds it."""

from __future__ import annotations

import os
from pathlib import Path

from ._errors import Error

__all__ = ["state_folder"]


def state_folder() -> Path:
    """`STRIPEWISE_HOME`, else the default of this user."""
    home = os.environ.get("STRIPEWISE_HOME")
    if home:
        return Path(home).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/stripewise")
    state = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):
        return Path(state) / "stripewise"
    user = os.environ.get("HOME")
    if not user:
        raise Error("neither STRIPEWISE_HOME nor HOME is set", "set STRIPEWISE_HOME to a folder of yours")
    return Path(user) / ".local/state/stripewise"
