"""Where the public functions find this room; the runtime is that of the backend."""

from __future__ import annotations

from anyinit._frameworks.keras import open_model, recognizes

__all__ = ["open_model", "recognizes"]
