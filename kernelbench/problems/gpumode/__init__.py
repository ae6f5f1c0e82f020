"""GPU MODE's task folders as problems, without conversion.

A folder with a ``task.yml`` is read and stands in for a project: ``kernelbench run submission.py
--task DIR``; a project of its own can be made of one. Others import
:mod:`kernelbench.problems.task_folder`. torch is imported only where something of a task runs.
"""
