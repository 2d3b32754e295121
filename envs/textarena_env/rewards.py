"""What training scripts read of a game of Wordle: guesses in replies, and marks in observations.

The server counts the marks itself, too: see `reward_signals` in the README. These functions are for
scripts that make rewards of the texts.
"""

from __future__ import annotations

import re

from .models import TextArenaObservation

__all__ = ["extract_feedback_counts", "extract_guess", "extract_wordle_feedback"]

LETTERS = 5
NO_GUESS = "[dunno]"
FEEDBACK = "Feedback:"
_IN_BRACKETS = re.compile(rf"\[[A-Za-z]{{{LETTERS}}}\]")


def extract_guess(text: str) -> str:
    """Find the guess in a reply, as the game reads it.

    Args:
        text: What the model said.

    Returns:
        The first five letters in brackets, in lower case; else the first five of all letters that
        there are, in brackets; ``[dunno]`` where there are fewer.
    """
    if found := _IN_BRACKETS.search(text):
        return found[0].lower()
    letters = [character for character in text.lower() if "a" <= character <= "z"][:LETTERS]
    return f"[{''.join(letters)}]" if len(letters) == LETTERS else NO_GUESS


def extract_wordle_feedback(observation: TextArenaObservation) -> str:
    """Find what the game has said of the last guess: its letters, and below them their marks.

    Returns:
        The text after the last message's first ``Feedback:``; empty where there is none.
    """
    for message in reversed(observation.messages):
        _, is_there, said = message.content.partition(FEEDBACK)
        if is_there:
            return said.strip()
    return ""


def extract_feedback_counts(feedback: str) -> tuple[int, int]:
    """Count the green and the yellow marks (``G`` and ``Y``) of the last guess.

    Args:
        feedback: What `extract_wordle_feedback` gives.
    """
    lines = ["".join(line.split()) for line in feedback.splitlines() if line.strip()]
    marks = next((line for line in reversed(lines) if set(line) <= set("GYX")), "")
    # A single line is a word without marks, and may be made of these letters.
    return (marks.count("G"), marks.count("Y")) if len(lines) > 1 else (0, 0)
