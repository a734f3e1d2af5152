"""`manage.py holdfast …`: the command line of Holdfast on the store of the settings."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from holdfast.api.store_source import URL_VARIABLE
from holdfast.cli import codes
from holdfast.cli.app import COMMANDS, call
from holdfast.integrations.django.settings import BadSettings, place


class Command(BaseCommand):  # type: ignore[misc]
    """Passes its arguments on."""

    help = (
        f"The command line of Holdfast on the store of the settings: {', '.join(COMMANDS)}. "
        f"`manage.py holdfast ls` shows the locks, `manage.py holdfast ls --help` the options."
    )
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("command", nargs=argparse.REMAINDER, help="as in `ls --json`")

    def handle(self, *args: Any, command: list[str], **options: Any) -> None:
        try:
            os.environ[URL_VARIABLE] = str(place().full_url)
        except BadSettings as trouble:
            raise CommandError(str(trouble), returncode=codes.USAGE) from None
        code = call(command)
        if code:
            sys.exit(code)
