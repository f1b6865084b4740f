"""The dashboard's data: history, snapshots, changes, findings that need attention."""
