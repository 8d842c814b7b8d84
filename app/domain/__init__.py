"""The nouns: frozen values without I/O. Wire shapes are pydantic, inner ones dataclasses."""
