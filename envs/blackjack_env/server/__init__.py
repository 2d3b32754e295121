"""The server side of the blackjack environment."""
