"""Which commands go to which thread, and what a command being served may ask."""

from collections.abc import Callable

from engine.api import (
    CountTokens,
    Event,
    Generate,
    LoadModel,
    PlanPrefill,
    ReadDocument,
    Tune,
    UnloadModel,
    Verify,
)

Cancelled = Callable[[], bool]
"""Whether the user has stopped the command that is being served."""

Emit = Callable[[Event], None]
"""Takes an event; may be called from any engine thread and never raises."""

DeskCommand = ReadDocument | CountTokens | PlanPrefill
ModelCommand = LoadModel | UnloadModel | Generate | Verify | Tune
