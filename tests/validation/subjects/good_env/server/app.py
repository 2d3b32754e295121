"""The web application, with the mutant that GOOD_ENV_MUTANT names."""

from __future__ import annotations

import os

from .serving import application

app = application(os.environ.get("GOOD_ENV_MUTANT"), os.environ)
