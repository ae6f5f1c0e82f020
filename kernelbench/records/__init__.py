"""What is kept of a measurement: records with a schema, their store, the ledger of comparisons.

It imports ``base``, so that a record can be read where nothing can be measured.
"""
