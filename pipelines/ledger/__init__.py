"""The ledger: one budget a data set, over all its releases, in a database.

Only commands that use a ledger import what is here, since SQLAlchemy takes its time.
"""
