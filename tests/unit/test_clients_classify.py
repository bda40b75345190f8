"""Why an attempt failed: every row of the documented table, and the order in which it is read."""

from email.utils import formatdate
from pathlib import Path

import pytest

from engine.clients.classify import BROAD, CODES, DECISIVE, GENERIC, PHRASES, classify, retry_after_ms
from engine.clients.errors import read_error
from engine.core.vocabulary import REASONS

DOCS = Path(__file__).parents[2] / "docs" / "clients.md"


class TestTables:
    def test_every_reason_is_one_of_the_languages(self):
        named = {*CODES.values(), *GENERIC.values(), *DECISIVE.values(), *BROAD.values(), *(r for _, r in PHRASES)}

        assert named <= set(REASONS)

    def test_codes_and_phrases_are_written_in_lower_case_because_they_are_compared_so(self):
        words = [*CODES, *GENERIC, *(p for p, _ in PHRASES)]

        assert words == [w.lower() for w in words]

    def test_a_word_is_a_code_or_a_generic_type_never_both(self):
        assert not CODES.keys() & GENERIC.keys()

    def test_the_documentation_lists_every_row(self):
        text = DOCS.read_text(encoding="utf-8")
        words = [*CODES, *GENERIC, *(p for p, _ in PHRASES), *map(str, DECISIVE | BROAD)]

        assert [word for word in words if f"`{word}`" not in text] == []


class TestOrder:
    @pytest.mark.parametrize(
        ("status", "codes", "message", "reason"),
        [
            # a code beats the status
            (400, ["rate_limit_error"], "", "rate_limit"),
            (400, ["context_length_exceeded", "invalid_request_error"], "", "context_exceeded"),
            (429, ["insufficient_quota"], "", "rate_limit"),
            (500, ["overloaded_error"], "", "overloaded"),
            (None, ["overloaded_error"], "Overloaded", "overloaded"),
            (503, ["server_overloaded"], "", "overloaded"),
            (400, ["RESOURCE_EXHAUSTED"], "", "rate_limit"),
            # a decisive status beats phrases
            (429, [], "maximum context length", "rate_limit"),
            (401, [], "the prompt is too long", "auth"),
            (403, [], "", "auth"),
            (408, [], "", "timeout"),
            (529, [], "", "overloaded"),
            # phrases say which of a broad status's causes it was, but only without a code
            (400, [], "Prompt is too long", "context_exceeded"),
            (400, ["invalid_request_error"], "prompt is too long: 2 tokens > 1 maximum", "context_exceeded"),
            (413, [], "too many tokens", "context_exceeded"),
            (400, [], "MAXIMUM CONTEXT reached", "context_exceeded"),
            (400, [], "Input is too long for requested model", "context_exceeded"),
            (503, ["server_error"], "The engine is currently overloaded", "overloaded"),
            (400, ["invalid_request_error"], "Output blocked by content filtering policy", "content_filter"),
            (0, [], "too many requests", "rate_limit"),
            (400, ["  "], "prompt is too long", "context_exceeded"),
            (400, ["some_new_code"], "prompt is too long", "invalid_request"),
            (400, ["unsupported_value"], "maximum context", "invalid_request"),
            # the broad status
            (400, [], "", "invalid_request"),
            (404, [], "", "invalid_request"),
            (413, [], "", "invalid_request"),
            (422, [], "", "invalid_request"),
            (402, ["billing_error"], "", "provider"),
            (409, [], "", "provider"),
            (500, [], "", "provider"),
            (503, [], "", "provider"),
            (599, [], "", "provider"),
            # nothing known
            (302, [], "moved", "unknown"),
            (None, [], "", "unknown"),
            (None, ["api_error"], "", "provider"),
            (None, ["error"], "", "unknown"),
        ],
    )
    def test_reason(self, status, codes, message, reason):
        assert classify(status, codes, message) == reason


class TestRetryAfter:
    NOW = 1_700_000_000.0

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("3", 3000),
            ("0", 0),
            (" 7 ", 7000),
            (None, None),
            ("", None),
            ("-5", None),
            ("soon", None),
            ("1.5", None),
            ("٣", None),
            ("9" * 400, 366 * 24 * 3600 * 1000),
        ],
    )
    def test_whole_seconds_and_nothing_else(self, value, expected):
        assert retry_after_ms(value, self.NOW) == expected

    def test_a_date_counts_from_now(self):
        assert retry_after_ms(formatdate(self.NOW + 90, usegmt=True), self.NOW) == 90_000

    def test_a_date_counts_from_the_servers_own_clock_if_it_shows_one(self):
        server = formatdate(self.NOW + 5000, usegmt=True)

        assert retry_after_ms(formatdate(self.NOW + 5030, usegmt=True), self.NOW, server) == 30_000

    def test_a_date_in_the_past_is_no_wait(self):
        assert retry_after_ms(formatdate(self.NOW - 90, usegmt=True), self.NOW) == 0

    @pytest.mark.parametrize(
        "value", ["Tue, 99 Foo 2024 25:61:61 GMT", "Mon, 01 Jan 99999 00:00:00 GMT", "\x00", "GMT"]
    )
    def test_a_date_that_is_none_is_ignored(self, value):
        assert retry_after_ms(value, self.NOW) is None


class TestErrorBodies:
    @pytest.mark.parametrize(
        ("body", "codes", "message"),
        [
            ({"error": {"message": "m", "type": "t", "code": "c"}}, ("c", "t"), "m"),
            (
                {"type": "error", "error": {"type": "overloaded_error", "message": "Over"}},
                ("overloaded_error",),
                "Over",
            ),
            ({"error": {"message": "m", "code": None, "type": None}}, (), "m"),
            ({"error": {"message": None, "code": 7}}, (), "no message"),
            ([{"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}}], ("RESOURCE_EXHAUSTED",), "m"),
            (
                {"error": {"code": "content_filter", "innererror": {"code": "X"}, "message": "m"}},
                ("content_filter", "X"),
                "m",
            ),
            ({"error": "model not found"}, (), "model not found"),
            ({"detail": "Not\n  Found"}, (), "Not Found"),
            ({"message": "too large"}, (), "too large"),
        ],
    )
    def test_the_shapes_of_providers_and_of_compatible_servers(self, body, codes, message):
        info = read_error(body)

        assert info is not None
        assert (info.codes, info.message) == (codes, message)

    @pytest.mark.parametrize("body", [None, [], {}, "text", 5, {"error": None}, {"detail": [1]}])
    def test_what_is_no_error_is_none(self, body):
        assert read_error(body) is None

    def test_a_long_message_is_cut_and_stays_on_one_line(self):
        info = read_error({"error": {"message": "a\x1b[31m\nb" * 5000}})

        assert info is not None
        assert len(info.message) == 500
        assert info.message.isprintable()
