"""One folder holds a workspace: `studio.db` and `images/`. Start at `storage.workspace`."""
