"""Numbers as text for people."""

from __future__ import annotations


def megabytes(size: int | None) -> str:
    """A size in bytes as text in megabytes of 10^6 bytes; empty if it is unknown."""
    return "" if size is None else f"{size / 1e6:,.0f} MB"


def flops(count: float) -> str:
    """A number of FLOPs as text in MFLOPs of 10^6, or in kFLOPs if it is less than one of them."""
    return f"{count / 1e6:,.1f} MFLOPs" if count >= 1e6 else f"{count / 1e3:.1f} kFLOPs"


def duration(seconds: float) -> str:
    """A time that has passed or is left in a run, to the second below an hour: 12s, 3m05s, 2h07m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def rough_duration(seconds: float) -> str:
    """A time in a table or an estimate, in the largest unit of which it has at least one: 12 s, 3.1 min, 2.1 days."""
    for size, unit in ((365 * 86400, "years"), (86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def words(name: str) -> str:
    """The name of a number as words."""
    return name.replace("_", " ")


def significant(value: float) -> str:
    """A number with its meaningful decimals."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def rounded(value: float, sign: str = "", digits: int = 4) -> str:
    """A number with some digits after the point, or in powers of ten if those would be 0.

    sign: `+` for numbers that always have a sign.
    """
    return f"{value:{sign}.{digits}f}" if value == 0 or abs(value) >= 0.5 * 10**-digits else f"{value:{sign}.1e}"


def difference_text(mean: float, bounds: tuple[float, float] | None, digits: int = 3) -> str:
    """A mean difference with its interval; None for one that is infinite. digits: of the interval's ends."""
    interval = ", ".join(rounded(bound, "+", digits) for bound in bounds or ())
    return f"{rounded(mean, '+')} {f'[{interval}]' if bounds else '(no finite interval yet)'}"


def number(value: float | None, form: str, after: str = "", before: str = "") -> str:
    """A number in a form such as `,.0f`, between two texts; empty if it is unknown."""
    return "" if value is None else f"{before}{value:{form}}{after}"
