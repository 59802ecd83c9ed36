"""Contract for import-linter: no module imports itself through others, including imports in functions."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import Any

from importlinter import Contract, ContractCheck
from importlinter.application import output


class NoCycles(Contract):
    """All modules can be ordered so that each imports only earlier ones."""

    def check(self, graph: Any, verbose: bool) -> ContractCheck:
        """Search for a cycle. Report it as the chain of its modules."""
        imports = {module: graph.find_modules_directly_imported_by(module) - {module} for module in graph.modules}
        sorter = TopologicalSorter(imports)
        try:
            sorter.prepare()
        except CycleError as error:
            return ContractCheck(kept=False, metadata={"cycle": list(reversed(error.args[1]))})
        return ContractCheck(kept=True)

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print the cycle."""
        output.print_error(" -> ".join(check.metadata["cycle"]))
