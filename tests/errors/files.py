from pathlib import Path

from tests.support.errors.provocations import Place


def write(place: Place, name: str, content: str | bytes = "") -> Path:
    """Write a file in the provocation's folder; return the folder."""
    path = place.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return place.folder
