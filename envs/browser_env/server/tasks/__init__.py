"""The bundled tasks: small web sites, each in many variants."""

from __future__ import annotations

from .base import Task
from .browsing import (
    Checkout,
    ClickLink,
    DeleteEntry,
    HoverMenu,
    Pages,
    Search,
    TableLookup,
    Voucher,
)
from .forms import (
    CheckBoxes,
    ChooseList,
    ClickButton,
    DragCard,
    EnterText,
    FillForm,
    Login,
    PickDate,
    ScrollTerms,
    WaitForButton,
)

__all__ = ["BUNDLED_TASKS", "Task"]

BUNDLED_TASKS: tuple[type[Task], ...] = (
    ClickButton,
    ClickLink,
    EnterText,
    Login,
    ChooseList,
    CheckBoxes,
    PickDate,
    DragCard,
    ScrollTerms,
    WaitForButton,
    FillForm,
    Search,
    TableLookup,
    Voucher,
    HoverMenu,
    Pages,
    DeleteEntry,
    Checkout,
)
