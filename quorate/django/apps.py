"""The app, under a label that no other has."""

from django.apps import AppConfig


class QuorateTasksConfig(AppConfig):
    """As Django asks."""

    name = "quorate.django"
    label = "quorate_tasks"
    verbose_name = "Quorate tasks"
