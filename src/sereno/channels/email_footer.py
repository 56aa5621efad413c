"""The footer of an email: links to unsubscribe and to the recipient's preferences, in their language."""

import re
from collections.abc import Sequence
from html import escape

from sereno.channels.contract import Message

# By language: the words of the unsubscribe link, and of the link to the preferences.
WORDS = {
    "en": ("Unsubscribe", "Your notifications"),
    "es": ("Darse de baja", "Sus avisos"),
    "pt": ("Cancelar a inscrição", "As suas notificações"),
}
_END = re.compile(r"</body\s*>", re.IGNORECASE)


def with_footer(message: Message, text: str, html: str) -> tuple[str, str]:
    """Return both parts with the links of the message that they do not contain; an empty part stays empty."""
    links = _links(message)
    return _text(text, links), _html(html, links)


def _links(message: Message) -> list[tuple[str, str]]:
    """Return words and address of each link. A message that cannot be unsubscribed has only the second."""
    language = (message.locale or "").replace("_", "-").partition("-")[0].lower()
    words = WORDS.get(language, WORDS["en"])
    urls = (message.unsubscribe_url, message.preferences_url)
    return [(word, url) for word, url in zip(words, urls, strict=True) if url]


def _text(text: str, links: Sequence[tuple[str, str]]) -> str:
    lines = [f"{word}: {url}" for word, url in links if url not in text]
    # The line "-- " marks what follows as a signature, which programs fold or leave out of answers (RFC 3676).
    return "\n".join([text.rstrip("\n"), "", "-- ", *lines, ""]) if text and lines else text


def _html(html: str, links: Sequence[tuple[str, str]]) -> str:
    # A template may print the address as it is or escaped.
    missing = [(word, escape(url)) for word, url in links if url not in html and escape(url) not in html]
    if not html or not missing:
        return html
    anchors = " · ".join(f'<a href="{url}">{escape(word)}</a>' for word, url in missing)
    footer = f'<p style="margin-top:2em;font-size:smaller">{anchors}</p>'
    ends = list(_END.finditer(html))
    place = ends[-1].start() if ends else len(html)
    return f"{html[:place]}{footer}\n{html[place:]}" if ends else f"{html}\n{footer}\n"
