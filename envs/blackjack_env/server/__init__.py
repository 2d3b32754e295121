"""The side of the blackjack environment that deals the cards."""
