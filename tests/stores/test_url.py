"""Store URLs: taken apart as they were put together, and never shown with their secrets."""

from __future__ import annotations

import string
from urllib.parse import quote, urlencode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import BadURL
from holdfast.stores.url import parse, redact

words = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)
# Recognisable wherever they turn up, and full of what URLs are made of.
secrets = st.text("!#%&+-.:;=?@[]_~/" + string.ascii_letters, max_size=8).map(
    lambda text: f"zq{text}qz"
)


@given(words, words, st.none() | st.integers(1, 65535), texts, secrets, words, texts)
def test_parts_come_back(
    scheme: str, host: str, port: int | None, user: str, password: str, path: str, value: str
) -> None:
    """Every part of a properly escaped URL is read back as it was."""
    scheme = f"x{scheme}"
    where = host if port is None else f"{host}:{port}"
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    text = f"{scheme}://{login}@{where}/{quote(path)}?{urlencode({'option': value})}"
    url = parse(text)
    assert (url.scheme, url.host, url.port) == (scheme, host, port)
    assert (url.user, url.password) == (user, password)
    assert (url.path, url.options) == (f"/{path}", {"option": value})
    assert quote(password, safe="") not in repr(url)
    assert password not in f"{url}"


@given(words, secrets)
@example("x", "zq/qz")
@example("x", "zq@qz")
@example("x", "zq:/@?#qz")
def test_unescaped_passwords_are_hidden_as_well(host: str, password: str) -> None:
    """Whatever is in a password, and wherever a URL stands in a message, it is not shown."""
    for text in (
        f"redis://user:{password}@{host}:1/0",
        f"redis://:{password}@{host}",
        f"could not reach redis://user:{password}@{host}/0, trying again",
    ):
        assert password not in redact(text)
        assert host in redact(text)


@given(
    st.sampled_from(["password", "PASSWORD", "secret_key", "token", "sig", "api-key", "passwd"]),
    words,
)
def test_secret_options_are_hidden(name: str, value: str) -> None:
    """Options that sound like a secret are not shown; the others are."""
    shown = redact(f"s3://bucket/x?region=eu&{name}=zq{value}qz&timeout=5")
    assert f"zq{value}qz" not in shown
    assert "region=eu" in shown
    assert "timeout=5" in shown


@given(st.text(max_size=60))
def test_redacting_never_fails(text: str) -> None:
    """Any text can be redacted, and twice is once."""
    assert redact(redact(text)) == redact(text)


@given(st.text(max_size=40) | st.text(":/@?#[]ab1%", max_size=20))
def test_parsing_fails_in_one_way(text: str) -> None:
    """A URL, or `BadURL`."""
    try:
        url = parse(text)
    except BadURL:
        return
    assert url.scheme


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://u:p@h/0", "redis://***@h/0"),
        ("sqlite:///a/b.db", "sqlite:///a/b.db"),
        ("sqlite:///a/b@c.db", "sqlite:///a/b@c.db"),
        ("memory://", "memory://"),
        ("no url at all, but me@home", "no url at all, but me@home"),
        ("two: redis://a:b@c and mysql://d:e@f", "two: redis://***@c and mysql://***@f"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    """What is no secret stays readable."""
    assert redact(text) == shown


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "redis"])
def test_a_password_that_was_not_escaped(scheme: str) -> None:
    """What is behind its / is neither a database nor for anybody to see."""
    with pytest.raises(BadURL, match="%2F") as refused:
        parse(f"{scheme}://user:s3@cr/et@127.0.0.1/0")
    assert "cr" not in str(refused.value)
    assert parse("s3://bucket/a@b").path == "/a@b"
    assert parse("postgresql://user:pw@host/d%40b").path == "/d@b"
