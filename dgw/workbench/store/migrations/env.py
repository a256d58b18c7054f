"""Alembic's environment: the connection is handed over by `dgw.workbench.store.engine`, never read from a file."""

from alembic import context

from dgw.workbench.store.schema import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
context.run_migrations()
