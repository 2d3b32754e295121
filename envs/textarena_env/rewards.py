"""Functions for training scripts that compute rewards from the texts of a game of Wordle.

They find the guess in a reply, and the marks in an observation. The server counts the marks too;
see `reward_signals` in the README.
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
    """Find the guess in a reply, as the game does.

    Args:
        text: The reply of the model.

    Returns:
        The first five letters in brackets, in lower case, with the brackets. If there are none, the
        first five letters of the text, in brackets. ``[dunno]`` if the text has fewer letters.
    """
    if found := _IN_BRACKETS.search(text):
        return found[0].lower()
    letters = [character for character in text.lower() if "a" <= character <= "z"][:LETTERS]
    return f"[{''.join(letters)}]" if len(letters) == LETTERS else NO_GUESS


def extract_wordle_feedback(observation: TextArenaObservation) -> str:
    """Find the game's feedback on the last guess: its letters, and below them their marks.

    Returns:
        The text after the first ``Feedback:`` of the last message that has one, or ``""``.
    """
    for message in reversed(observation.messages):
        _, is_there, said = message.content.partition(FEEDBACK)
        if is_there:
            return said.strip()
    return ""


def extract_feedback_counts(feedback: str) -> tuple[int, int]:
    """Count the green and the yellow marks (``G`` and ``Y``) of the last guess.

    Args:
        feedback: The result of `extract_wordle_feedback`.
    """
    lines = ["".join(line.split()) for line in feedback.splitlines() if line.strip()]
    marks = next((line for line in reversed(lines) if set(line) <= set("GYX")), "")
    # A single line is a word without marks, and may be made of these letters.
    return (marks.count("G"), marks.count("Y")) if len(lines) > 1 else (0, 0)
