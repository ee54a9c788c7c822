"""Logs that programs can read: one JSON object a line."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from penstock.model.errors import UsageError, shown

FIELDS = (
    *("tube", "task_id", "attempt", "max_attempts", "lane", "key", "ending", "seconds"),
    *("pid", "store", "slots", "handlers", "ok", "failed", "given_back", "lost", "tubes"),
    *("url", "port"),
)
"""What a line may say beside its message. Nothing else is shown: no data of tasks, no sessions, no tokens."""
TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """Makes a line of a log record: time, level, logger, message, then those of FIELDS that the record has.

    >>> record = logging.makeLogRecord({"name": "penstock.worker", "levelname": "INFO", "msg": "done", "created": 0.5})
    >>> record.tube, record.task_id, record.token = "crawl", 7, 12345
    >>> print(JsonFormatter().format(record))
    {"time":"1970-01-01T00:00:00.500000Z","level":"INFO","logger":"penstock.worker","message":"done","tube":"crawl","task_id":7}
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")[:-6] + "Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        known = vars(record)
        line |= {name: known[name] for name in FIELDS if known.get(name) is not None}
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        elif text := record.exc_text or known.get("exception"):
            line["exception"] = text
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return _encoded(line)


def _encoded(line: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=str).decode()
    except Exception:  # a text with half a character, a dict with strange keys: the line must not be lost
        plain = {name: str(value).encode(errors="backslashreplace").decode() for name, value in line.items()}
        return msgspec.json.encode(plain).decode()


def setup(level: str | int = "INFO", format: str = "text", stream: TextIO | None = None) -> logging.Handler:
    """Write what Penstock logs to stderr, or another stream, as text or json. A second call replaces the first.

    Only the logger "penstock" is touched. Call nothing of this if your program sets up logging by itself.

    >>> handler = setup("WARNING", "json")
    >>> logger = logging.getLogger("penstock")
    >>> logger.info("not shown")
    >>> logger.removeHandler(handler); logger.setLevel(logging.NOTSET)
    """
    if format not in ("text", "json"):
        raise UsageError(f"format must be 'text' or 'json', got {shown(format)}")
    logger = logging.getLogger("penstock")
    try:
        logger.setLevel(level.upper() if isinstance(level, str) else level)
    except (TypeError, ValueError):
        raise UsageError(f"level must be one of DEBUG INFO WARNING ERROR CRITICAL, got {shown(level)}") from None
    handler = _Handler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else logging.Formatter(TEXT))
    for old in [old for old in logger.handlers if isinstance(old, _Handler)]:
        logger.removeHandler(old)
    logger.addHandler(handler)
    return handler


class _Handler(logging.StreamHandler[TextIO]):
    """One that setup() has made."""
