"""Views of Django REST framework. (It can be imported only when Django has its settings.)"""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.urls import path
from rest_framework.decorators import api_view, authentication_classes, permission_classes
from rest_framework.views import APIView

from holdfast.integrations.django import current_lease, guard


class Report(APIView):  # type: ignore[misc]
    """A view class of Django REST framework."""

    authentication_classes = permission_classes = ()

    @guard("report:{month}", busy="skip")
    def get(self, request: Any, month: str) -> HttpResponse:
        """One of its methods."""
        return HttpResponse(current_lease().key)


@api_view(["GET"])
@authentication_classes([])
@permission_classes([])
@guard("report:{month}", busy="skip")
def report(request: Any, month: str) -> HttpResponse:
    """A view of Django REST framework."""
    return HttpResponse(current_lease().key)


urlpatterns = [
    path("function/<month>/", report),
    path("class/<month>/", Report.as_view()),
]
