"""Puts a page together as one file that needs nothing from outside, and lets nothing in."""

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

_ASSETS = files("drasp.report")


def page(template: str, title: str, styles: Sequence[str], scripts: Sequence[str], data: Any) -> bytes:
    """A page from its parts: styles and scripts are allowed by their hashes alone, and data are never run."""
    script = "".join(map(_asset, scripts))
    return _filled(template, title, styles, f"script-src '{_hash(script)}'; ", script=script, data=json_block(data))


def still_page(title: str, styles: Sequence[str], body: str) -> bytes:
    """A page on which nothing runs; `body` is HTML, with what others wrote escaped."""
    return _filled("still.html", title, styles, "", body=body)


def _filled(template: str, title: str, styles: Sequence[str], scripts: str, **parts: str) -> bytes:
    style = "".join(map(_asset, styles))
    policy = (
        f"default-src 'none'; {scripts}style-src '{_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    text = Template(_asset(template)).substitute(title=escape(title), policy=policy, style=style, **parts)
    return text.encode("utf-8", "replace")  # a path may be no UTF-8


def json_block(data: Any) -> str:
    """JSON that cannot end the script element around it, whatever a token is called."""
    text = json.dumps(_finite(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(data: Any) -> Any:
    """JSON has no word for a number that is none."""
    match data:
        case dict():
            return {key: _finite(value) for key, value in data.items()}
        case list() | tuple():
            return [_finite(value) for value in data]
        case float() if not math.isfinite(data):
            return None
        case _:
            return data


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
