"""The AppConfig: system checks, and `override_settings` in tests."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.signals import setting_changed

from holdfast.integrations.django.checks import register_checks
from holdfast.integrations.django.clients import forget_clients


class HoldfastConfig(AppConfig):  # type: ignore[misc]
    """`"holdfast.integrations.django"` in INSTALLED_APPS."""

    name = "holdfast.integrations.django"
    label = "holdfast"
    verbose_name = "Holdfast"

    def ready(self) -> None:
        register_checks()
        setting_changed.connect(forget_clients)
