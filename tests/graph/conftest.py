"""Settings of the property tests here: no deadlines, for a slow machine is no defect."""

from hypothesis import settings

settings.register_profile("graph", deadline=None)
settings.load_profile("graph")
