"""What environments made of text need from whoever owns the language model."""

from __future__ import annotations

from typing import Any, Protocol

from typing_extensions import TypedDict

__all__ = ["Message", "ModelTokenizer"]


class Message(TypedDict):
    """One turn of a conversation, as chat templates take it."""

    role: str
    content: str


class ModelTokenizer(Protocol):
    """The part of a Hugging Face tokenizer that a chat environment calls."""

    def apply_chat_template(
        self,
        conversation: list[Message],
        tokenize: bool = True,
        return_tensors: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Render a conversation: as token ids, or as text with ``tokenize=False``."""
        ...

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> str:
        """Turn token ids into text."""
        ...
