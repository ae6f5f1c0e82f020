"""The report: one page without network, made of a project's records.

``record`` says what it holds, ``gather`` collects that, ``page`` shows it. The
page shows no figure that the record, which ``kernelbench report --json`` gives, lacks.
"""
