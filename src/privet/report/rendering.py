"""Pages and cards from the templates in `templates/`: everything that is filled in is escaped.

A page is one HTML file that needs no network: style, script and pictures are in it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from privet._formatting import chance, number, percent, standing_of


def render_html(template: str, **values: Any) -> str:
    """An HTML template filled in; text is escaped, so that no name can become a tag.

    >>> render_html("pairs.html.j2", pairs=[("purpose", "<b>")])
    '<dl><dt>purpose</dt><dd>&lt;b&gt;</dd></dl>'
    """
    return str(_environment(html=True).get_template(template).render(**values))


def render_markdown(template: str, **values: Any) -> str:
    """A Markdown template filled in; text is escaped, so that no name can become markup."""
    return str(_environment(html=False).get_template(template).render(**values))


@cache
def _environment(*, html: bool) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("privet.report"),
        autoescape=html,
        finalize=None if html else escape_markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )
    environment.filters |= {
        "number": number,
        "chance": chance,
        "percent": percent,
        "standing": standing_of,
    }
    return environment


def escape_markdown(value: object) -> str:
    """A text in one line that Markdown shows as it is.

    >>> print(escape_markdown("<img src=x> [a](b) *c* | x_y"))
    &lt;img src=x> \\[a\\](b) \\*c\\* \\| x_y
    >>> print(escape_markdown("__a__ ~~b~~ $c$"))
    \\_\\_a\\_\\_ \\~\\~b\\~\\~ \\$c\\$
    """
    text = re.sub(r"\s*[\r\n]+\s*", " ", str(value))
    text = re.sub(r"([\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", text)
    return text.replace("&", "&amp;").replace("<", "&lt;")
