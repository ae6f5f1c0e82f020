"""PTX text as a model: modules, functions, statements, symbols (PTX ISA 9.1, 4, 5 and 7)."""
