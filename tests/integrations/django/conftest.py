"""Django in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import django
import pytest
from django.conf import settings
from django.test import override_settings

from tests.helpers import unique

APP = "holdfast.integrations.django"


@pytest.fixture
def change() -> Iterator[Any]:
    """A function that changes settings for one test; the locks are in a store of the test's."""
    if not settings.configured:
        # Other tests have Django in the same process, and may have come first.
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    changed: list[Any] = []

    def change_settings(**values: Any) -> None:
        override = override_settings(**values)
        override.enable()
        changed.append(override)

    change_settings(INSTALLED_APPS=[APP], HOLDFAST={"url": f"memory://{unique()}"})
    yield change_settings
    for override in reversed(changed):
        override.disable()
