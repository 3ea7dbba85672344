"""Write files atomically: after an error or crash, the old file is unchanged."""

from __future__ import annotations

from pathlib import Path

from lce_core.errors import SpecError


def write_whole(out: Path, content: str | bytes) -> Path:
    """Write `content` to `out` through a temporary file and a rename; return `out`."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = out.with_name(f".{out.name}.aside")
        aside.write_bytes(content.encode() if isinstance(content, str) else content)
        aside.replace(out)
    except OSError as error:
        raise unwritable(out, error) from error
    return out


def unwritable(out: Path, error: OSError, what: str = "file") -> SpecError:
    return SpecError(
        "--out",
        f"{out}, which cannot be written ({error.strerror})",
        f"a writable {what}",
        "choose another path",
    )
