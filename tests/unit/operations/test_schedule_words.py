"""Cron expressions and intervals in words."""

from __future__ import annotations

from case_tables import check_every_row
from dragoman.operations.cron import parse
from dragoman.operations.schedule_words import words_of_cron, words_of_interval

VIENNA = "Europe/Vienna"


def test_cron_expressions_in_words() -> None:
    def row(expression: str, words: str) -> None:
        assert words_of_cron(parse(expression), VIENNA) == words

    check_every_row(
        row,
        [
            ("0 3 * * *", "every day at 03:00, Europe/Vienna"),
            ("@daily", "every day at 00:00, Europe/Vienna"),
            ("0 6,18 * * *", "every day at 06:00 and 18:00, Europe/Vienna"),
            ("* * * * *", "every minute"),
            ("*/5 * * * *", "every 5 minutes"),
            ("0,30 * * * *", "every 30 minutes"),
            ("30 * * * *", "at minute 30 of every hour"),
            ("5,20 * * * *", "at minutes 5 and 20 of every hour"),
            ("@hourly", "every hour"),
            ("0 */2 * * *", "every 2 hours, Europe/Vienna"),
            ("15 */6 * * *", "every 6 hours at minute 15, Europe/Vienna"),
            ("0 8 * * MON", "Mondays at 08:00, Europe/Vienna"),
            ("0 8 * * 7,1", "Mondays and Sundays at 08:00, Europe/Vienna"),
            ("30 4 * * MON-FRI", "Mondays to Fridays at 04:30, Europe/Vienna"),
            ("*/15 9-17 * * MON-FRI", "every 15 minutes from 09:00 to 17:45, Mondays to Fridays, Europe/Vienna"),
            ("10 9-17 * * *", "every hour from 09:10 to 17:10, Europe/Vienna"),
            ("*/10 * * * SAT", "every 10 minutes, Saturdays, Europe/Vienna"),
            ("0 0 1 * *", "on day 1 of every month at 00:00, Europe/Vienna"),
            ("0 0 1,15 * *", "on days 1 and 15 of every month at 00:00, Europe/Vienna"),
            ("0 0 L * *", "on the last day of every month at 00:00, Europe/Vienna"),
            ("@yearly", "on day 1 of January at 00:00, Europe/Vienna"),
            ("0 7 * JUN-AUG MON", "Mondays in June, July and August at 07:00, Europe/Vienna"),
            ("0 7 * JUN *", "every day in June at 07:00, Europe/Vienna"),
            # The expression itself:
            ("0 0 13 * FRI", "0 0 13 * FRI, Europe/Vienna"),
            ("1,2,3,5,8,13 * * * *", "1,2,3,5,8,13 * * * *, Europe/Vienna"),
            ("0 1,3,5,9,10 * * *", "0 1,3,5,9,10 * * *, Europe/Vienna"),
            ("0 0 1,L * *", "0 0 1,L * *, Europe/Vienna"),
            ("0 0 1,2,3,4,5 * *", "0 0 1,2,3,4,5 * *, Europe/Vienna"),
            ("0 0 * 1-5 *", "0 0 * 1-5 *, Europe/Vienna"),
        ],
    )


def test_intervals_in_words() -> None:
    def row(seconds: float, words: str) -> None:
        assert words_of_interval(seconds) == words

    check_every_row(
        row,
        [
            (1, "every second"),
            (30, "every 30 seconds"),
            (90, "every 90 seconds"),
            (60, "every minute"),
            (300.0, "every 5 minutes"),
            (3_600, "every hour"),
            (86_400, "every day"),
            (604_800, "every 7 days"),
            (1.5, "every 1.5 seconds"),
        ],
    )
