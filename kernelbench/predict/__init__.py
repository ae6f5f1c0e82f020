"""Times that nobody has measured: a launch's records, replayed on a model of a device."""
