"""Marks texts for translation where they are declared; they are translated where they are shown."""


def QT_TRANSLATE_NOOP(context: str, text: str) -> str:
    """`text` itself. Qt's tools look for calls of this name; PySide6's own has no declared types."""
    del context
    return text
