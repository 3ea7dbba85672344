"""The smallest safetensors file, for tests that plan with weights and never load them."""

import json


def smallest_weights(note: str = "") -> bytes:
    """Return a safetensors file without tensors; files with other notes have other bytes."""
    header = json.dumps({"__metadata__": {"note": note}}).encode()
    return len(header).to_bytes(8, "little") + header
