"""The words of railhop-link that can be wrong. What they do is in ../uml/faults_test.py."""

from __future__ import annotations

import pytest

from railhop.testing.uml_guest import link


@pytest.mark.parametrize(
    ("word", "value"), [("10%", "10%"), ("0.5%", "0.5%"), ("100%", "100%"), ("0%", "")]
)
def test_percent_is_read(word: str, value: str) -> None:
    assert link.parse_percent(word) == value


@pytest.mark.parametrize("word", ["10", "101%", "-1%", "%", "nan%", "1e1%"])
def test_wrong_percent_is_named(word: str) -> None:
    with pytest.raises(link.LinkError, match=f"loss '{word}': not a percentage"):
        link.parse_percent(word)


@pytest.mark.parametrize(
    ("word", "value"), [("5ms", "5000us"), ("200us", "200us"), ("1.5s", "1500000us"), ("0ms", "")]
)
def test_delay_is_read(word: str, value: str) -> None:
    assert link.parse_delay(word) == value


@pytest.mark.parametrize("word", ["5", "5m", "-5ms", "ms", "5 ms"])
def test_wrong_delay_is_named(word: str) -> None:
    with pytest.raises(link.LinkError, match=f"delay '{word}'"):
        link.parse_delay(word)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("100Mb/s", "100000000bit"),
        ("12.5MB/s", "100000000bit"),
        ("1Gb/s", "1000000000bit"),
        ("64kb/s", "64000bit"),
        ("9b/s", "9bit"),
        ("none", ""),
    ],
)
def test_rate_is_read(word: str, value: str) -> None:
    assert link.parse_rate(word) == value


@pytest.mark.parametrize("word", ["100", "100Mb", "0b/s", "fast", "100mb/s"])
def test_wrong_rate_is_named(word: str) -> None:
    with pytest.raises(link.LinkError, match=f"rate '{word}'"):
        link.parse_rate(word)


def test_address_is_read() -> None:
    assert link.parse_address("10.0.9.1") == "10.0.9.1/24"
    assert link.parse_address("10.0.9.1/16") == "10.0.9.1/16"
    assert link.parse_address("none") == ""


@pytest.mark.parametrize("word", ["10.0.9", "10.0.9.256", "10.0.0.1/33", "fe80::1", ""])
def test_wrong_address_is_named(word: str) -> None:
    with pytest.raises(link.LinkError, match=f"address '{word}'"):
        link.parse_address(word)


@pytest.mark.parametrize("word", ["0", "255", "9001", "large", "-1"])
def test_wrong_mtu_is_named(word: str) -> None:
    with pytest.raises(link.LinkError, match=f"mtu '{word}': not a number of bytes between 256"):
        link.parse_mtu(word)


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("cable", []),
        ("cable", ["sideways"]),
        ("cable", ["out", "tx"]),
        ("down", ["now"]),
        ("blackhole", ["some"]),
        ("loss", []),
        ("loss", ["1%", "2%"]),
        ("address", []),
        ("mtu", ["1500", "rx"]),
        ("clear", ["all"]),
        ("explode", []),
    ],
)
def test_words_that_are_not_understood_are_named(verb: str, arguments: list[str]) -> None:
    nic = link.Nic.__new__(link.Nic)  # Without a guest there is no device to find.
    nic.device = "rxa0"
    with pytest.raises(link.LinkError) as error:
        link.change(nic, verb, arguments)
    assert str(error.value).startswith(f"rxa0: '{verb}")
    assert "usage: railhop-link" in str(error.value)


def test_a_missing_verb_is_said() -> None:
    with pytest.raises(link.LinkError, match="rxa0: a verb is missing"):
        link.apply(["rxa0"])


def test_a_device_without_a_guest_is_unknown() -> None:
    with pytest.raises(link.LinkError, match="rxz9: no such device"):
        link.apply(["rxz9", "down"])
