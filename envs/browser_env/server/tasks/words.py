"""Words from which tasks make their instances."""

from __future__ import annotations

__all__ = ["CITIES", "COLOURS", "FIRST_NAMES", "LAST_NAMES", "THINGS", "VERBS"]

FIRST_NAMES = (
    "Ada", "Bruno", "Chidi", "Dana", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kira",
    "Liam", "Mona", "Noor", "Olga", "Pablo", "Quinn", "Rosa", "Sami", "Tara",
)  # fmt: skip
LAST_NAMES = (
    "Abel", "Brandt", "Castro", "Dubois", "Eriksen", "Fischer", "Garcia", "Haddad", "Ivanov",
    "Jansen", "Kowalski", "Lindgren", "Moreau", "Novak", "Okafor", "Petrov", "Rossi", "Sato",
)  # fmt: skip
CITIES = (
    "Accra", "Bergen", "Cusco", "Dakar", "Essen", "Fukuoka", "Ghent", "Hobart", "Izmir", "Jaipur",
    "Kyoto", "Lagos", "Malmö", "Nantes", "Oslo", "Porto", "Quito", "Riga", "Split", "Turin",
)  # fmt: skip
COLOURS = ("amber", "black", "blue", "brown", "green", "grey", "orange", "purple", "red", "white")
THINGS = (
    "basket", "bottle", "candle", "clock", "cup", "drum", "fan", "hammer", "jacket", "kettle",
    "lamp", "mirror", "notebook", "pillow", "radio", "scarf", "stool", "teapot", "umbrella", "vase",
)  # fmt: skip
VERBS = (
    "Accept", "Archive", "Copy", "Edit", "Forward", "Hide", "Keep", "Mark", "Open", "Print",
    "Rename", "Reply", "Save", "Send", "Share", "Sort",
)  # fmt: skip
