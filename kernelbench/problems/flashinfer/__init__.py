"""Problems, shapes and steps from FlashInfer-Trace datasets and SOL-ExecBench problems.

``kernelbench import`` reads Definition, Workload, Solution and Trace files, validates them
(:mod:`kernelbench.problems.flashinfer.models`) and writes a project of them
(:func:`import_project`), whose problem is a :class:`DefinitionProblem`.
"""

from kernelbench.problems.flashinfer.importing import Imported, import_project
from kernelbench.problems.flashinfer.problem import DEFINITION, DefinitionProblem

__all__ = ["DEFINITION", "DefinitionProblem", "Imported", "import_project"]
