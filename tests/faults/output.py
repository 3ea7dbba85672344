"""What no user may read, whatever dies."""

DUMPS = ("Traceback", "ERROR", "Error")


def require_no_dump(output: str, *more: str) -> None:
    for word in (*DUMPS, *more):
        assert word not in output, output
