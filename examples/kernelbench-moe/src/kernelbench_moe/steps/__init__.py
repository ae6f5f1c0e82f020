"""Steps of the lineage ``layer``, written here by the build (``export_steps.py``)."""
