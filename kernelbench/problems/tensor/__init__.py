"""Problems that are one small class: inputs, a reference, a bound; the rest has defaults.

:class:`~kernelbench.problems.tensor.problem.TensorProblem` is what its author subclasses,
:mod:`~kernelbench.problems.tensor.adapter` makes the whole interface of it.
"""
