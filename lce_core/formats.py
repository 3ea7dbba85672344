"""Format numbers for readers: tables, pages, charts, sentences and terminals share these rules."""

import math


def score(value: float) -> str:
    """Format a score with four significant digits and at most four decimals: "0.1235"."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if not 1e-3 <= abs(value) < 1e6:
        return f"{value:.3e}"
    return f"{value:.{min(4, max(0, 3 - math.floor(math.log10(abs(value)))))}f}"


def short_score(value: float) -> str:
    """Format a score for a narrow column: "12.34", "123", and "3e5" from 1e5 on."""
    if abs(value) >= 1e5:
        return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")
    return f"{value:.{2 if abs(value) < 100 else 0}f}"


def rounded(value: float, *beside: float | None) -> str:
    """Format `value` with as many decimals as the numbers `beside` it in a sentence get."""
    size = max(abs(one) for one in (value, *beside) if one is not None)
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value + 0.0:.{2 if size >= 0.0995 or size < 5e-4 else 3}f}"


def estimate(value: float, low: float | None, high: float | None) -> str:
    """Format a value for a sentence, with its interval if there is one: "0.12 [0.05 to 0.19]"."""
    number = rounded(value, low, high)
    if low is None or high is None:
        return number
    return f"{number} [{rounded(low, value, high)} to {rounded(high, value, low)}]"


def difference(value: float, low: float | None, high: float | None) -> str:
    """Format a difference with its interval, if any: "+0.012 [-0.003, +0.027]"."""
    if low is None or high is None:
        return f"{value:+.3f}"
    return f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"


def p_value(p_adjusted: float, family: str | None = None) -> str:
    """Format an adjusted p-value: "p = 0.012", or "q = 0.012" in the family "exploratory"."""
    name = "q" if family == "exploratory" else "p"
    if p_adjusted < 0.001:
        return f"{name} < 0.001"
    return f"{name} = {p_adjusted:.3f}".rstrip("0").rstrip(".")


def three_digits(number: float) -> str:
    """Format a number with three significant digits, or from 99.95 on as an integer: "1,234"."""
    return f"{number:,.0f}" if abs(number) >= 99.95 else f"{number:.3g}"


def two_digits(number: int) -> str:
    """Format a whole number with two significant digits, rounded up: "7", "24", "1,300"."""
    size = 10 ** max(0, len(str(number)) - 2)
    return f"{-(-number // size) * size:,}"


def count(number: float) -> str:
    """Format a number with three digits and a suffix: "950", "65.5k", "1.05M", "3B"."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{three_digits(number / size)}{unit}"
    return three_digits(number)


def tick(value: float) -> str:
    """Format an axis label: all digits below a million ("32,768"), a suffix above ("1.05M")."""
    if value >= 1e6:
        return count(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def duration(seconds: float) -> str:
    """Format seconds in the unit that fits: "40 s", "6 min", "3.2 h", "12 d"."""
    for size, unit in ((1, "s"), (60, "min"), (3600, "h")):
        if seconds < 100 * size:
            number = seconds / size
            return f"{number:.{int(unit == 'h' and number < 9.95)}f} {unit}"
    return f"{seconds / 86400:,.0f} d"


def size(num_bytes: int) -> str:
    """Format a number of bytes in binary units: "512 B", "1.5 MiB", "4 GiB"."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if num_bytes >= 1 << shift:
            return f"{three_digits(num_bytes / (1 << shift))} {unit}"
    return f"{num_bytes} B"
